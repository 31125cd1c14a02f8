-- A commit costs half when it does not change the row of its run, and when the events of many runs lie
-- together in the file. Both tables are made anew, as SQLite cannot change them to that extent.

DROP INDEX runs_by_status;
DROP INDEX runs_by_creation;
ALTER TABLE runs RENAME TO old_runs;

-- Every run as its journal leaves it. Changes only in the transaction of the event that explains it
-- (the renewal of a lease excepted). Times are seconds since the epoch unless said otherwise.
CREATE TABLE runs (
    -- The name its user gave it.
    run_id TEXT NOT NULL PRIMARY KEY,
    -- Random, so that idempotency keys of two stores never meet.
    uid TEXT NOT NULL UNIQUE,
    -- Name of the workflow.
    workflow TEXT NOT NULL,
    -- Where the workflow was found, as JSON (records.Source).
    source TEXT,
    -- Fingerprint of the arguments.
    digest TEXT NOT NULL,
    -- The seven words of records.Status.
    status TEXT NOT NULL CHECK (
        status IN ('queued', 'running', 'waiting', 'held', 'completed', 'failed', 'killed')
    ),
    -- Why it is held: a word of records.HoldReason.
    reason TEXT,
    -- The same for a reader.
    detail TEXT,
    -- The user's tags, a JSON object.
    tags TEXT NOT NULL,
    -- Joins the run to traces kept elsewhere.
    trace_id TEXT NOT NULL,
    created_at REAL NOT NULL,
    -- When a waiting run can go on.
    due_at REAL,
    -- The event that changed its status last: number and hash. Where the journal ends, table `events`
    -- says; if it ends before this one, somebody cut it off.
    sealed_seq INTEGER NOT NULL DEFAULT 0,
    sealed_head BLOB,
    -- Fencing token: grows with every claim, and a write under an older one is refused.
    epoch INTEGER NOT NULL,
    -- Who holds the run, as JSON (records.Identity).
    owner TEXT,
    -- Until when, for observers on other machines.
    lease_wall REAL,
    -- Until when, in seconds since the boot that the owner names.
    lease_boot REAL,
    -- The turn loop that the run stands in, and since which event its journal holds nothing but that
    -- loop's turns and what concerns the run as a whole: so much a resume need not read.
    loop TEXT,
    loop_since INTEGER NOT NULL DEFAULT 0,
    -- The arguments, as the codec's JSON. Last, so that nobody reads past a large value.
    args BLOB NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO runs (
    run_id, uid, workflow, source, digest, status, reason, detail, tags, trace_id, created_at, due_at,
    epoch, owner, lease_wall, lease_boot, loop, loop_since, args,
    sealed_seq, sealed_head
)
SELECT run_id, uid, workflow, source, digest, status, reason, detail, tags, trace_id, created_at, due_at,
    epoch, owner, lease_wall, lease_boot, loop, loop_since, args,
    seq, head
FROM old_runs;

DROP TABLE old_runs;

-- For workers that look for runs to claim. No column of it changes with every event.
CREATE INDEX runs_by_status ON runs (status, created_at);

-- For lists, newest first.
CREATE INDEX runs_by_creation ON runs (created_at, run_id);

DROP TRIGGER events_are_not_changed;
DROP TRIGGER events_are_not_deleted;
DROP TRIGGER events_are_not_replaced;
DROP INDEX events_around_turns;
ALTER TABLE events RENAME TO old_events;

-- The journals: append-only, each run's events chained by hash. With a rowid, so that the events of many
-- runs that are written together lie together: a page of each run would be four kilobytes an event.
CREATE TABLE events (
    run_id TEXT NOT NULL,
    -- 1, 2, 3, ... within the run.
    seq INTEGER NOT NULL,
    -- What happened, such as `step.completed` (events.py).
    kind TEXT NOT NULL,
    -- The step, timer or turn loop that it happened to.
    key TEXT,
    -- The particulars, as JSON (events.py).
    data BLOB NOT NULL,
    -- When, in seconds since the epoch.
    at REAL NOT NULL,
    -- The epoch it was written under.
    epoch INTEGER NOT NULL,
    -- Hash over the hash of the event before it and all columns of this one.
    hash BLOB NOT NULL,
    PRIMARY KEY (run_id, seq)
) STRICT;

INSERT INTO events (run_id, seq, kind, key, data, at, epoch, hash)
SELECT run_id, seq, kind, key, data, at, epoch, hash FROM old_events ORDER BY run_id, seq;

DROP TABLE old_events;

-- What a resume reads of the turns that it skips: their saved states, and what befell the run.
CREATE INDEX events_around_turns ON events (run_id, key, seq)
WHERE key IS NULL OR kind = 'turn.saved';

CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events
BEGIN
    SELECT RAISE(ABORT, 'events is append-only: an event is never changed');
END;

CREATE TRIGGER events_are_not_deleted BEFORE DELETE ON events
WHEN NOT EXISTS (SELECT 1 FROM prune_permits WHERE run_id = OLD.run_id)
BEGIN
    SELECT RAISE(ABORT, 'events is append-only: deleting needs a row in prune_permits');
END;

-- INSERT OR REPLACE deletes without firing the trigger above, so it is met here.
CREATE TRIGGER events_are_not_replaced BEFORE INSERT ON events
WHEN EXISTS (SELECT 1 FROM events WHERE run_id = NEW.run_id AND seq = NEW.seq)
BEGIN
    SELECT RAISE(ABORT, 'events is append-only: this run has an event of that number');
END;
