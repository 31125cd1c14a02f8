-- Control from outside: the emergency stop, children, signals and questions.

-- What every process that executes runs looks at several times a second. Exactly one row.
CREATE TABLE control (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    -- Grows with every command that such a process must hear of: kill, pause, signal, answer, stop.
    version INTEGER NOT NULL,
    -- The emergency stop, in force while this is not null: since when (seconds since the epoch), by
    -- whom and why.
    stopped_at REAL,
    stopped_by TEXT,
    stop_reason TEXT
) STRICT;

INSERT INTO control (id, version) VALUES (1, 0);

-- Which run each of the latest of those commands was about; null: all of them. So a process need not look
-- at thousands of runs since one of them got a signal.
CREATE TABLE news (
    version INTEGER NOT NULL PRIMARY KEY,
    run_id TEXT
) STRICT;

-- Which run was called in which. Written once, with the child.
CREATE TABLE children (
    run_id TEXT NOT NULL PRIMARY KEY,
    parent TEXT NOT NULL,
    -- The call in the parent's journal.
    key TEXT NOT NULL,
    -- The run at the top, whose account they share.
    root TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX children_by_parent ON children (parent);

-- Signals that runs were sent: the events `signal.sent`, and what has become of them.
CREATE TABLE signals (
    run_id TEXT NOT NULL,
    -- Number of the event.
    seq INTEGER NOT NULL,
    name TEXT NOT NULL,
    -- Key of the wait that has got it; null until then.
    taken_by TEXT,
    -- Why that wait did not deliver it, if it did not fit.
    note TEXT,
    PRIMARY KEY (run_id, seq)
) STRICT, WITHOUT ROWID;

-- Those that no wait has got, in the order of sending.
CREATE INDEX signals_untaken ON signals (run_id, name, seq) WHERE taken_by IS NULL;

-- What runs wait for that comes from outside, as their journals leave it. Of a signal, a row from
-- `wait.opened` to `wait.ended`; of a question it stays, so that late answers are told why they are.
CREATE TABLE waits (
    run_id TEXT NOT NULL,
    key TEXT NOT NULL,
    -- signal, question or approval.
    what TEXT NOT NULL,
    -- Of the signal; or the token of the question, which is unique.
    name TEXT NOT NULL,
    opened_at REAL NOT NULL,
    due_at REAL,
    -- Number of the event `wait.opened`, where the particulars stand.
    seq INTEGER NOT NULL,
    -- Number of the event `question.answered`; null until then.
    answered INTEGER,
    -- How the wait ended, see `wait.ended`; null until then.
    ended TEXT,
    PRIMARY KEY (run_id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX waits_by_name ON waits (name);

-- For processes that take runs up: what waits comes in the order of its time.
CREATE INDEX runs_by_due ON runs (due_at) WHERE status = 'waiting';

-- And those that a process has, few among all.
CREATE INDEX runs_with_owner ON runs (run_id) WHERE owner IS NOT NULL;
