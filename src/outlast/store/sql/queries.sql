-- Every statement the library runs against table `runs` and table `events`, by name.
-- All columns of a run are always listed in the order of `records.RunRow`.

-- Where a run's journal ends, and what an owner's write must find unchanged.
-- name: fence
SELECT coalesce(last.seq, 0), coalesce(last.hash, zeroblob(32)), r.epoch, r.status, r.loop
FROM runs AS r LEFT JOIN events AS last ON last.run_id = r.run_id
 AND last.seq = (SELECT max(seq) FROM events WHERE run_id = r.run_id)
WHERE r.run_id = :run_id;

-- See `journal.extend`.
-- name: set_loop
UPDATE runs SET loop = :loop, loop_since = :since WHERE run_id = :run_id;

-- The row names the last event of the journal, so that its end cannot be cut off unseen.
-- name: seal
UPDATE runs
SET (sealed_seq, sealed_head) = (SELECT seq, hash FROM events WHERE run_id = :run_id
                                 ORDER BY seq DESC LIMIT 1)
WHERE run_id = :run_id;

-- A row if the event that the run's row names is not in the journal any more.
-- name: find_broken_seal
SELECT sealed_seq FROM runs AS r
WHERE run_id = :run_id AND sealed_head IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM events AS e
                  WHERE e.run_id = r.run_id AND e.seq = r.sealed_seq AND e.hash = r.sealed_head);

-- After the event that explains it.
-- name: set_status
UPDATE runs
SET status = :status, reason = :reason, detail = :detail, due_at = :due_at,
    sealed_seq = :seq, sealed_head = :head
WHERE run_id = :run_id;

-- A run is killed whose record is damaged. What shows the damage stays as it is: the seal and the owner.
-- name: kill_damaged
UPDATE runs SET status = 'killed', reason = NULL, detail = :detail, due_at = NULL, epoch = :epoch
WHERE run_id = :run_id;

-- name: set_owner
UPDATE runs
SET epoch = :epoch, owner = :owner, lease_wall = :lease_wall, lease_boot = :lease_boot
WHERE run_id = :run_id;

-- Where the workflow was found at the latest claim.
-- name: set_source
UPDATE runs SET source = :source WHERE run_id = :run_id;

-- name: renew_lease
UPDATE runs
SET lease_wall = :lease_wall, lease_boot = :lease_boot
WHERE run_id = :run_id AND epoch = :epoch AND owner IS NOT NULL
RETURNING run_id;

-- A supervisor renews for its worker, known by process instead of epoch.
-- name: renew_leases_of_process
UPDATE runs INDEXED BY runs_with_owner
SET lease_wall = :lease_wall, lease_boot = :lease_boot
WHERE owner IS NOT NULL AND status NOT IN ('completed', 'failed', 'killed')
  AND json_extract(owner, '$.pid') = :pid
  AND json_extract(owner, '$.started') = :started
  AND json_extract(owner, '$.boot') = :boot
  AND json_extract(owner, '$.namespace') = :namespace
  AND json_extract(owner, '$.host') = :host;

-- name: insert_run
INSERT INTO runs (run_id, uid, workflow, source, args, digest, status, tags, trace_id,
                  created_at, epoch)
VALUES (:run_id, :uid, :workflow, :source, :args, :digest, 'queued', :tags, :trace_id, :at, 0);

-- For one event; the values are repeated for several.
-- name: append_events
INSERT INTO events (run_id, seq, kind, key, data, at, epoch, hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: read_run
SELECT r.run_id, uid, workflow, source, digest, status, reason, detail, tags, trace_id,
       created_at, max(r.created_at, last.at), due_at, last.seq, last.hash, r.epoch, owner, lease_wall, lease_boot,
       c.parent, c.root
FROM runs AS r JOIN events AS last ON last.run_id = r.run_id
 AND last.seq = (SELECT max(seq) FROM events WHERE run_id = r.run_id)
LEFT JOIN children AS c ON c.run_id = r.run_id
WHERE r.run_id = :run_id;

-- name: read_args
SELECT args FROM runs WHERE run_id = :run_id;

-- The event that changed the run's status last, which its journal must contain.
-- name: read_seal
SELECT sealed_seq, sealed_head FROM runs WHERE run_id = :run_id;

-- What a resume needs besides the row: the arguments, and the turn loop that the run stands in (see
-- `journal.extend`).
-- name: read_claimed
SELECT args, loop, loop_since FROM runs WHERE run_id = :run_id;

-- Ids that start with a prefix; two are enough to know that it is ambiguous.
-- name: find_runs
SELECT run_id FROM runs WHERE substr(run_id, 1, length(:prefix)) = :prefix ORDER BY run_id LIMIT 5;

-- name: last_run
SELECT run_id FROM runs ORDER BY created_at DESC, run_id DESC LIMIT 1;

-- name: list_runs
SELECT r.run_id, uid, workflow, source, digest, status, reason, detail, tags, trace_id,
       created_at, max(r.created_at, last.at), due_at, last.seq, last.hash, r.epoch, owner, lease_wall, lease_boot,
       c.parent, c.root
FROM runs AS r JOIN events AS last ON last.run_id = r.run_id
 AND last.seq = (SELECT max(seq) FROM events WHERE run_id = r.run_id)
LEFT JOIN children AS c ON c.run_id = r.run_id
WHERE (:status IS NULL OR status = :status) AND (:workflow IS NULL OR workflow = :workflow)
ORDER BY created_at DESC, r.run_id DESC
LIMIT :limit;

-- Unfinished runs that may lack a living owner, oldest first. A child is executed by its parent.
-- name: list_unfinished
SELECT r.run_id, uid, workflow, source, digest, status, reason, detail, tags, trace_id,
       created_at, max(r.created_at, last.at), due_at, last.seq, last.hash, r.epoch, owner, lease_wall, lease_boot,
       c.parent, c.root
FROM runs AS r JOIN events AS last ON last.run_id = r.run_id
 AND last.seq = (SELECT max(seq) FROM events WHERE run_id = r.run_id)
LEFT JOIN children AS c ON c.run_id = r.run_id
WHERE status IN ('queued', 'running', 'waiting')
  AND NOT EXISTS (SELECT 1 FROM runs AS above
                  WHERE above.run_id = c.parent
                    AND above.status NOT IN ('completed', 'failed', 'killed'))
ORDER BY created_at, r.run_id;

-- Runs that have not ended, oldest first.
-- name: live_runs
SELECT run_id, workflow
FROM runs
WHERE status NOT IN ('completed', 'failed', 'killed')
  AND (:workflow IS NULL OR workflow = :workflow)
ORDER BY created_at, run_id;

-- Names of the workflows that have runs, ended or not.
-- name: workflows
SELECT DISTINCT workflow FROM runs ORDER BY workflow;

-- name: read_events
SELECT run_id, seq, kind, key, data, at, epoch, hash
FROM events WHERE run_id = :run_id ORDER BY seq;

-- name: read_events_before
SELECT run_id, seq, kind, key, data, at, epoch, hash
FROM events WHERE run_id = :run_id AND seq < :seq ORDER BY seq;

-- The saves of a turn loop, newest first, each with the hash of the event before it.
-- name: read_saves
SELECT run_id, seq, kind, key, data, at, epoch, hash,
       (SELECT p.hash FROM events AS p WHERE p.run_id = e.run_id AND p.seq = e.seq - 1)
FROM events AS e
WHERE run_id = :run_id AND key = :key AND seq < :before AND (key IS NULL OR kind = 'turn.saved')
ORDER BY seq DESC LIMIT :limit;

-- What befell the run as a whole between two events, likewise.
-- name: read_events_of_run
SELECT run_id, seq, kind, key, data, at, epoch, hash,
       (SELECT p.hash FROM events AS p WHERE p.run_id = e.run_id AND p.seq = e.seq - 1)
FROM events AS e
WHERE run_id = :run_id AND key IS NULL AND seq >= :since AND seq < :until
  AND (key IS NULL OR kind = 'turn.saved')
ORDER BY seq;

-- Attempts between two events that may have opened under the idempotency key of a call that was
-- dropped before (some more is no harm), likewise.
-- name: read_taken_over
SELECT run_id, seq, kind, key, data, at, epoch, hash,
       (SELECT p.hash FROM events AS p WHERE p.run_id = e.run_id AND p.seq = e.seq - 1)
FROM events AS e
WHERE run_id = :run_id AND kind = 'step.started' AND seq >= :since AND seq < :until
  AND (instr(data, CAST('"alias":' AS BLOB))
       OR key IN (SELECT key FROM events
                  WHERE run_id = :run_id AND kind = 'step.started' AND seq < :since))
ORDER BY seq;

-- name: read_events_after
SELECT run_id, seq, kind, key, data, at, epoch, hash
FROM events WHERE run_id = :run_id AND seq > :seq ORDER BY seq;

-- name: read_last_of_kind
SELECT run_id, seq, kind, key, data, at, epoch, hash
FROM events WHERE run_id = :run_id AND kind = :kind ORDER BY seq DESC LIMIT 1;

-- How far a run has come: completed steps, the last saved turn, and whether something was dropped, so
-- that not all of these count (`cuts.py`). What is no JSON was altered, and counts as absent.
-- name: progress_of
SELECT count(DISTINCT key) FILTER (WHERE kind = 'step.completed'
           OR kind = 'step.settled' AND json_valid(CAST(data AS TEXT))
              AND json_extract(CAST(data AS TEXT), '$.decision') = 'done'
              AND NOT EXISTS (SELECT 1 FROM events AS later
                              WHERE later.run_id = :run_id AND later.seq > events.seq
                                AND later.key = events.key AND later.kind = 'step.reconciled')),
       max(CASE WHEN kind = 'turn.saved' AND json_valid(CAST(data AS TEXT)) THEN json_extract(CAST(data AS TEXT), '$.turn') END),
       max(kind = 'run.accepted')
FROM events WHERE run_id = :run_id;

-- Where the journal of the store as a whole ends.
-- name: store_tail
SELECT seq, hash FROM events WHERE run_id = :run_id ORDER BY seq DESC LIMIT 1;

-- name: seal_store
INSERT INTO store_seal (id, seq, head) VALUES (1, :seq, :head)
ON CONFLICT (id) DO UPDATE SET seq = :seq, head = :head;

-- name: read_store_seal
SELECT seq, head FROM store_seal;

-- name: read_breaker
SELECT settings, declared_by, state FROM breakers WHERE name = :name;

-- name: list_breakers
SELECT name, settings, declared_by, state FROM breakers ORDER BY name;

-- name: put_breaker
INSERT INTO breakers (name, settings, declared_by, state)
VALUES (:name, :settings, :declared_by, :state)
ON CONFLICT (name) DO UPDATE SET settings = :settings, declared_by = :declared_by, state = :state;

-- name: read_budget
SELECT account FROM budgets WHERE run_id = :run_id;

-- Whether a run has ever had an account.
-- name: had_budget
SELECT 1 FROM events
WHERE run_id = :run_id AND key IS NULL AND kind = 'run.budgeted'
  AND (key IS NULL OR kind = 'turn.saved')
LIMIT 1;

-- name: insert_budget
INSERT INTO budgets (run_id, account) VALUES (:run_id, :account);

-- name: set_budget
UPDATE budgets SET account = :account WHERE run_id = :run_id;

-- ---- control from outside

-- The emergency stop, and how many commands there have been.
-- name: read_control
SELECT version, stopped_at, stopped_by, stop_reason FROM control;

-- Executing processes hear of a command.
-- name: bump_control
UPDATE control SET version = version + 1 RETURNING version;

-- name: insert_news
INSERT INTO news (version, run_id) VALUES (:version, :run_id);

-- name: forget_news
DELETE FROM news WHERE version <= :version;

-- Which runs the commands since one were about.
-- name: read_news
SELECT version, run_id FROM news WHERE version > :version ORDER BY version;

-- name: set_stop
UPDATE control SET stopped_at = :at, stopped_by = :by, stop_reason = :reason;

-- How runs stand, given as a JSON array of their ids, for the process that executes them.
-- name: read_standings
SELECT run_id, status, epoch FROM runs WHERE run_id IN (SELECT value FROM json_each(:run_ids));

-- How long what executes a killed run has to end.
-- name: read_grace
SELECT coalesce(json_extract(CAST(data AS TEXT), '$.grace'), 5.0), at
FROM events WHERE run_id = :run_id AND kind = 'run.killed' ORDER BY seq DESC LIMIT 1;

-- Ids of unfinished runs that have an owner, alive or not, oldest first.
-- name: list_executed
SELECT run_id FROM runs
WHERE owner IS NOT NULL AND status NOT IN ('completed', 'failed', 'killed')
ORDER BY created_at, run_id;

-- Killed runs that a process has not let go of, among those given as a JSON array of their ids.
-- name: not_let_go
SELECT run_id FROM runs
WHERE status = 'killed' AND owner IS NOT NULL
  AND run_id IN (SELECT value FROM json_each(:run_ids));

-- name: insert_child
INSERT INTO children (run_id, parent, key, root) VALUES (:run_id, :parent, :key, :root);

-- A run and all below it.
-- name: run_and_below
WITH RECURSIVE below (run_id) AS (
    VALUES (:run_id)
    UNION SELECT c.run_id FROM children AS c JOIN below AS b ON c.parent = b.run_id)
SELECT run_id FROM below;

-- The children of a run, oldest first.
-- name: children_of
SELECT c.run_id, r.status FROM children AS c JOIN runs AS r ON r.run_id = c.run_id
WHERE c.parent = :parent ORDER BY r.created_at, c.run_id;

-- All runs below the one at the top, which share its account.
-- name: family
SELECT run_id FROM children WHERE root = :root ORDER BY run_id;

-- The children of a run for people, oldest first.
-- name: list_children
SELECT c.run_id, c.key, r.workflow, r.status, r.reason, r.detail
FROM children AS c JOIN runs AS r ON r.run_id = c.run_id
WHERE c.parent = :parent ORDER BY r.created_at, c.run_id;

-- Ids of unfinished runs, oldest first.
-- name: live_run_ids
SELECT run_id FROM runs
WHERE status NOT IN ('completed', 'failed', 'killed')
  AND (:workflow IS NULL OR workflow = :workflow)
ORDER BY created_at, run_id;

-- Runs that a process holds, known by its identity.
-- name: runs_of_process
SELECT run_id, epoch, status FROM runs INDEXED BY runs_with_owner
WHERE owner IS NOT NULL
  AND json_extract(owner, '$.pid') = :pid
  AND json_extract(owner, '$.started') = :started
  AND json_extract(owner, '$.boot') = :boot
  AND json_extract(owner, '$.namespace') = :namespace
  AND json_extract(owner, '$.host') = :host;

-- A waiting run can go on now: what it waits for may have come.
-- name: set_due
UPDATE runs SET due_at = :due WHERE run_id = :run_id AND status = 'waiting';

-- Whether the latest kill of a run came with that of another one.
-- name: killed_with
SELECT 1 FROM (SELECT data FROM events WHERE run_id = :run_id AND kind = 'run.killed'
               ORDER BY seq DESC LIMIT 1)
WHERE json_extract(CAST(data AS TEXT), '$.parent') = :parent;

-- ---- workers

-- Runs of the named workflows (a JSON array) that nobody has and that can go on now: queued ones and
-- those whose time has come, whichever have been so for longer. A child is executed by its parent.
-- name: find_ready
SELECT run_id, workflow, since FROM (
    SELECT run_id, workflow, created_at AS since FROM runs AS r
    WHERE status = 'queued' AND owner IS NULL
      AND workflow IN (SELECT value FROM json_each(:workflows))
      AND run_id NOT IN (SELECT value FROM json_each(:without))
      AND NOT EXISTS (SELECT 1 FROM children AS c JOIN runs AS p ON p.run_id = c.parent
                      WHERE c.run_id = r.run_id
                        AND p.status NOT IN ('completed', 'failed', 'killed'))
    ORDER BY created_at LIMIT :limit)
UNION ALL
SELECT run_id, workflow, since FROM (
    SELECT run_id, workflow, due_at AS since FROM runs AS r INDEXED BY runs_by_due
    WHERE status = 'waiting' AND due_at <= :now AND owner IS NULL
      AND workflow IN (SELECT value FROM json_each(:workflows))
      AND run_id NOT IN (SELECT value FROM json_each(:without))
      AND NOT EXISTS (SELECT 1 FROM children AS c JOIN runs AS p ON p.run_id = c.parent
                      WHERE c.run_id = r.run_id
                        AND p.status NOT IN ('completed', 'failed', 'killed'))
    ORDER BY due_at LIMIT :limit)
ORDER BY since LIMIT :limit;

-- Runs that some process has, likewise, which may have died since; or only those that were handed
-- back for it.
-- name: list_owned
SELECT run_id, workflow, status, due_at, owner, lease_wall, lease_boot
FROM runs AS r INDEXED BY runs_with_owner
WHERE owner IS NOT NULL AND (status = 'queued' OR status IN ('running', 'waiting') AND NOT :released)
  AND workflow IN (SELECT value FROM json_each(:workflows))
  AND NOT EXISTS (SELECT 1 FROM children AS c JOIN runs AS p ON p.run_id = c.parent
                  WHERE c.run_id = r.run_id
                    AND p.status NOT IN ('completed', 'failed', 'killed'));

-- Killed runs that a process has not let go of yet.
-- name: list_ending
SELECT run_id, owner FROM runs INDEXED BY runs_with_owner
WHERE owner IS NOT NULL AND status = 'killed';

-- ---- signals and questions

-- The run in which a run was called.
-- name: parent_of
SELECT parent FROM children WHERE run_id = :run_id;

-- name: read_event
SELECT run_id, seq, kind, key, data, at, epoch, hash
FROM events WHERE run_id = :run_id AND seq = :seq;

-- name: insert_signal
INSERT INTO signals (run_id, seq, name, taken_by, note)
VALUES (:run_id, :seq, :name, :taken_by, :note);

-- name: read_signal
SELECT seq, name, taken_by, note FROM signals WHERE run_id = :run_id AND seq = :seq;

-- The next signal of a name that no wait has got.
-- name: next_signal
SELECT s.seq, e.data FROM signals AS s JOIN events AS e ON e.run_id = s.run_id AND e.seq = s.seq
WHERE s.run_id = :run_id AND s.name = :name AND s.taken_by IS NULL
ORDER BY s.seq LIMIT 1;

-- A wait gets a signal, unless another one has got it.
-- name: take_signal
UPDATE signals SET taken_by = :key, note = :note
WHERE run_id = :run_id AND seq = :seq AND taken_by IS NULL
RETURNING seq;

-- A wait that was cancelled has delivered nothing; what did not fit it stays set aside.
-- name: give_back_signals
UPDATE signals SET taken_by = NULL WHERE run_id = :run_id AND taken_by = :key AND note IS NULL;

-- Signals that no wait has delivered, in the order of sending.
-- name: list_signals
SELECT s.seq, s.name, s.note, e.data, e.at
FROM signals AS s JOIN events AS e ON e.run_id = s.run_id AND e.seq = s.seq
WHERE s.run_id = :run_id AND (s.taken_by IS NULL OR s.note IS NOT NULL)
ORDER BY s.seq;

-- A question that is asked anew takes the place of the one before.
-- name: put_wait
INSERT INTO waits (run_id, key, what, name, opened_at, due_at, seq, answered, ended)
VALUES (:run_id, :key, :what, :name, :opened_at, :due_at, :seq, :answered, :ended)
ON CONFLICT (run_id, key) DO UPDATE
SET what = :what, name = :name, opened_at = :opened_at, due_at = :due_at, seq = :seq,
    answered = :answered, ended = :ended;

-- name: read_wait
SELECT what, name, due_at, seq, answered, ended FROM waits WHERE run_id = :run_id AND key = :key;

-- The wait for a signal of this name that was opened first.
-- name: wait_of_signal
SELECT key, seq FROM waits
WHERE run_id = :run_id AND name = :name AND what = 'signal' ORDER BY seq LIMIT 1;

-- The answer to a question that is open.
-- name: read_answer
SELECT e.seq, e.data
FROM waits AS w JOIN events AS e ON e.run_id = w.run_id AND e.seq = w.answered
WHERE w.run_id = :run_id AND w.key = :key AND w.name = :name AND w.ended IS NULL;

-- An answer to a question, or none (null): the one there was did not fit.
-- name: set_answered
UPDATE waits SET answered = :seq WHERE run_id = :run_id AND key = :key;

-- name: end_wait
UPDATE waits SET ended = :how WHERE run_id = :run_id AND key = :key;

-- name: delete_wait
DELETE FROM waits WHERE run_id = :run_id AND key = :key;

-- The question of a run that was answered last.
-- name: last_answered
SELECT name, key, answered FROM waits
WHERE run_id = :run_id AND answered IS NOT NULL ORDER BY answered DESC LIMIT 1;

-- Where a question stands, by its token.
-- name: find_question
SELECT run_id, key FROM waits WHERE name = :name AND what <> 'signal';

-- Questions that somebody may answer now, of all runs or of one, the oldest first.
-- name: list_questions
SELECT w.name, w.run_id, r.workflow, w.key, w.what, w.opened_at, w.due_at, e.data
FROM waits AS w JOIN runs AS r ON r.run_id = w.run_id
JOIN events AS e ON e.run_id = w.run_id AND e.seq = w.seq
WHERE w.what <> 'signal' AND w.answered IS NULL AND w.ended IS NULL
  AND (w.due_at IS NULL OR w.due_at > :now)
  AND r.status NOT IN ('completed', 'failed', 'killed')
  AND (:run_id IS NULL OR w.run_id = :run_id)
ORDER BY w.opened_at, w.run_id, w.key;

-- A run that is about to wait can go on at once if what it waits for has come meanwhile, or what a
-- child of it waits for.
-- name: wake_if_news
UPDATE runs SET due_at = :at
WHERE run_id = :run_id AND status = 'waiting' AND (
    EXISTS (
        SELECT 1 FROM waits AS w WHERE w.run_id = :run_id AND w.ended IS NULL
        AND (w.answered IS NOT NULL OR w.what = 'signal' AND EXISTS (
            SELECT 1 FROM signals AS s
            WHERE s.run_id = :run_id AND s.name = w.name AND s.taken_by IS NULL)))
    OR EXISTS (
        SELECT 1 FROM children AS c JOIN runs AS k ON k.run_id = c.run_id
        WHERE c.parent = :run_id AND k.status = 'waiting' AND k.owner IS NULL
        AND k.due_at <= :at));

-- An operator has dropped a part of the journal: what these two tables say is put right.
-- name: forget_waits
DELETE FROM waits WHERE run_id = :run_id;

-- name: forget_signals
DELETE FROM signals WHERE run_id = :run_id;

-- A row if a run has come further since an event: what resets its count of crashes (engine/history.py).
-- name: find_progress
SELECT 1 FROM events
WHERE run_id = :run_id AND seq > :seq
  AND kind IN ('step.completed', 'step.failed', 'step.refused', 'timer.fired', 'value.recorded',
               'turn.saved', 'wait.ended', 'child.ended', 'run.resumed')
LIMIT 1;
