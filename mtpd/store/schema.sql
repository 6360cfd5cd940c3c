-- Version 1 of the state database. NULL means unknown (or: has not happened); it never means 0.
-- Times are RFC 3339 in UTC. JSON columns are checked to be JSON.

CREATE TABLE schema_migrations (
    version     INTEGER PRIMARY KEY,
    name        TEXT NOT NULL,
    applied_at  TEXT NOT NULL
) STRICT;

-- What a digest stands for; fields is NULL where only the digest is known.
CREATE TABLE fingerprints (
    digest  TEXT PRIMARY KEY CHECK (digest <> ''),
    fields  TEXT CHECK (fields IS NULL OR json_valid(fields))
) STRICT, WITHOUT ROWID;

-- The ledger: a row is committed before the process is spawned, so that the next daemon
-- finds every engine that may still run.
CREATE TABLE engine_starts (
    engine_id         TEXT PRIMARY KEY CHECK (engine_id <> ''),
    boot_id           TEXT NOT NULL,
    profile           TEXT NOT NULL,
    device            TEXT NOT NULL,
    arm               TEXT NOT NULL CHECK (json_valid(arm)),
    argv_digest       TEXT NOT NULL,
    endpoint          TEXT NOT NULL,
    fingerprint       TEXT NOT NULL,
    intent_at         TEXT NOT NULL,
    spawned_at        TEXT,
    pid               INTEGER CHECK (pid > 0),
    start_ticks       INTEGER CHECK (start_ticks >= 0),
    ended_at          TEXT,
    exit_code         INTEGER CHECK (exit_code >= 0),
    signal            INTEGER CHECK (signal > 0),
    residency         TEXT CHECK (residency IN ('resident', 'evicted', 'spilled', 'host', 'unknown')),
    residency_reason  TEXT,
    evidence          TEXT CHECK (evidence IS NULL OR json_valid(evidence)),
    CHECK ((spawned_at IS NULL) = (pid IS NULL)),
    CHECK (ended_at IS NOT NULL OR (exit_code IS NULL AND signal IS NULL)),
    CHECK (exit_code IS NULL OR signal IS NULL)
) STRICT;

CREATE INDEX engine_starts_open ON engine_starts (intent_at) WHERE ended_at IS NULL;

-- perplexity is an operation of a later version: adding a value to a CHECK rebuilds the table.
CREATE TABLE operations (
    number           INTEGER PRIMARY KEY AUTOINCREMENT,
    id               TEXT NOT NULL UNIQUE CHECK (id <> ''),
    kind             TEXT NOT NULL
        CHECK (kind IN ('switch', 'load', 'unload', 'tune', 'probe', 'sweep', 'perplexity')),
    state            TEXT NOT NULL
        CHECK (state IN ('queued', 'running', 'done', 'failed', 'cancelled')),
    params           TEXT NOT NULL CHECK (json_valid(params)),
    progress_done    INTEGER NOT NULL,
    progress_total   INTEGER,
    progress_note    TEXT NOT NULL,
    created_at       TEXT NOT NULL,
    started_at       TEXT,
    ended_at         TEXT,
    result           TEXT CHECK (result IS NULL OR json_valid(result)),
    error            TEXT CHECK (error IS NULL OR json_valid(error)),
    idempotency_key  TEXT UNIQUE CHECK (idempotency_key <> ''),
    CHECK ((state IN ('done', 'failed', 'cancelled')) = (ended_at IS NOT NULL)),
    CHECK (state <> 'queued' OR started_at IS NULL),
    CHECK (state NOT IN ('running', 'done') OR started_at IS NOT NULL),
    CHECK ((state = 'done') = (result IS NOT NULL)),
    CHECK ((state = 'failed') = (error IS NOT NULL))
) STRICT;

CREATE INDEX operations_open ON operations (number) WHERE ended_at IS NULL;

-- One repetition of a cell. start_id is an engine_id without a foreign key: measurements of
-- other machines can be imported, their engine starts cannot.
CREATE TABLE measurements (
    id                     INTEGER PRIMARY KEY AUTOINCREMENT,
    at                     TEXT NOT NULL,
    operation_id           TEXT REFERENCES operations (id),
    start_id               TEXT NOT NULL,
    fingerprint            TEXT NOT NULL REFERENCES fingerprints (digest),
    profile                TEXT NOT NULL,
    drafter                TEXT NOT NULL CHECK (drafter IN
        ('none', 'mtp', 'mtp-file', 'draft-model', 'eagle3', 'ngram', 'adaptive')),
    depth                  INTEGER NOT NULL CHECK (depth >= 0),
    p_min                  REAL NOT NULL CHECK (p_min >= 0.0 AND p_min < 1.0),
    workload               TEXT NOT NULL,
    prompt                 INTEGER NOT NULL CHECK (prompt >= 0),
    prompt_digest          TEXT,
    repetition             INTEGER NOT NULL CHECK (repetition >= 0),
    tokens                 INTEGER NOT NULL CHECK (tokens >= 1),
    decode_s               REAL NOT NULL CHECK (decode_s > 0.0),
    steps                  INTEGER CHECK (steps >= 0),
    drafted                INTEGER CHECK (drafted >= 0),
    accepted               INTEGER CHECK (accepted >= 0),
    accepted_per_position  TEXT
        CHECK (accepted_per_position IS NULL OR json_type(accepted_per_position) = 'array'),
    acceptance_source      TEXT NOT NULL
        CHECK (acceptance_source IN ('metrics', 'timings', 'log', 'none')),
    digest                 TEXT NOT NULL,
    residency              TEXT NOT NULL
        CHECK (residency IN ('resident', 'evicted', 'spilled', 'host', 'unknown')),
    residency_layers       INTEGER CHECK (residency_layers IS NULL OR residency = 'evicted'),
    residency_bytes        INTEGER CHECK (residency_bytes IS NULL OR residency = 'spilled'),
    residency_reason       TEXT CHECK ((residency_reason IS NOT NULL) = (residency = 'unknown')),
    excluded               TEXT,
    edge_start_c           REAL,
    edge_end_c             REAL,
    junction_max_c         REAL,
    power_mean_w           REAL,
    power_cap_w            REAL,
    CHECK ((depth = 0) = (drafter = 'none'))
) STRICT;

CREATE INDEX measurements_cell ON measurements (profile, depth, workload);
CREATE INDEX measurements_operation ON measurements (operation_id);
CREATE INDEX measurements_fingerprint ON measurements (fingerprint);

-- The journal. inputs is all that is needed to take the decision again; schema_version says
-- how to read it. outcome is appended once the effect is known.
CREATE TABLE decisions (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    at              TEXT NOT NULL,
    schema_version  INTEGER NOT NULL CHECK (schema_version >= 1),
    act             TEXT NOT NULL
        CHECK (act IN ('choose', 'keep', 'switch', 'reject', 'measure', 'roll_back')),
    subject         TEXT NOT NULL,
    arm             TEXT CHECK (arm IS NULL OR json_valid(arm)),
    previous        TEXT CHECK (previous IS NULL OR json_valid(previous)),
    predicted       TEXT CHECK (predicted IS NULL OR json_valid(predicted)),
    reason          TEXT NOT NULL,
    evidence        TEXT NOT NULL CHECK (json_type(evidence) = 'array'),
    operation_id    TEXT REFERENCES operations (id),
    inputs          TEXT NOT NULL CHECK (json_valid(inputs)),
    outcome         TEXT
) STRICT;

CREATE INDEX decisions_subject ON decisions (subject, id);

-- What a decision rests on, in the order given.
CREATE TABLE decision_measurements (
    decision_id     INTEGER NOT NULL REFERENCES decisions (id),
    position        INTEGER NOT NULL CHECK (position >= 0),
    measurement_id  INTEGER NOT NULL REFERENCES measurements (id),
    PRIMARY KEY (decision_id, position)
) STRICT, WITHOUT ROWID;

CREATE INDEX decision_measurements_measurement ON decision_measurements (measurement_id);
