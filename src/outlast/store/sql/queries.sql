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
UPDATE runs
SET lease_wall = :lease_wall, lease_boot = :lease_boot
WHERE status IN ('running', 'waiting')
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
       created_at, max(r.created_at, last.at), due_at, last.seq, last.hash, r.epoch, owner, lease_wall, lease_boot
FROM runs AS r JOIN events AS last ON last.run_id = r.run_id
 AND last.seq = (SELECT max(seq) FROM events WHERE run_id = r.run_id)
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
       created_at, max(r.created_at, last.at), due_at, last.seq, last.hash, r.epoch, owner, lease_wall, lease_boot
FROM runs AS r JOIN events AS last ON last.run_id = r.run_id
 AND last.seq = (SELECT max(seq) FROM events WHERE run_id = r.run_id)
WHERE (:status IS NULL OR status = :status) AND (:workflow IS NULL OR workflow = :workflow)
ORDER BY created_at DESC, r.run_id DESC
LIMIT :limit;

-- Unfinished runs that may lack a living owner, oldest first.
-- name: list_unfinished
SELECT r.run_id, uid, workflow, source, digest, status, reason, detail, tags, trace_id,
       created_at, max(r.created_at, last.at), due_at, last.seq, last.hash, r.epoch, owner, lease_wall, lease_boot
FROM runs AS r JOIN events AS last ON last.run_id = r.run_id
 AND last.seq = (SELECT max(seq) FROM events WHERE run_id = r.run_id)
WHERE status IN ('queued', 'running', 'waiting')
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
