-- What bounds runs: breakers, shared by all runs of the store, and the budgets of single runs.

-- One row a breaker that anybody has asked for settings of its own, or whose tool has failed.
-- How it came to its state stands in `events`, under the run id '@store'.
CREATE TABLE breakers (
    name TEXT NOT NULL PRIMARY KEY,
    -- JSON (policy.breaker.Breaker); null: the defaults.
    settings TEXT,
    -- JSON: the names of the steps that have those settings.
    declared_by TEXT,
    -- JSON (policy.breaker.State).
    state TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Where the journal of the store as a whole ends, so that it cannot be cut off unseen. One row, once it
-- has begun.
CREATE TABLE store_seal (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    -- Number and hash of its last event.
    seq INTEGER NOT NULL,
    head BLOB NOT NULL
) STRICT;

-- The account of a run that has a budget, shared by its children.
CREATE TABLE budgets (
    run_id TEXT NOT NULL PRIMARY KEY,
    -- JSON (policy.budget.Account).
    account TEXT NOT NULL
) STRICT, WITHOUT ROWID;
