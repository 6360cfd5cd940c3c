-- Version 9. What llama-perplexity and llama-bench measured of a model file. A file is told
-- apart by path, size and time as in model_files; NULL means unknown.

CREATE TABLE quality (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    at             TEXT NOT NULL,
    operation_id   TEXT REFERENCES operations (id),
    profile        TEXT NOT NULL,
    file           TEXT NOT NULL CHECK (file <> ''),
    size           INTEGER NOT NULL CHECK (size >= 0),
    mtime_ns       INTEGER NOT NULL,
    sha256         TEXT CHECK (length(sha256) = 64),
    perplexity     REAL NOT NULL CHECK (perplexity > 0.0),
    stderr         REAL CHECK (stderr >= 0.0),
    corpus         TEXT NOT NULL,
    corpus_sha256  TEXT NOT NULL CHECK (length(corpus_sha256) = 64),
    chunks         INTEGER NOT NULL CHECK (chunks >= 1),
    context        INTEGER NOT NULL CHECK (context >= 1),
    flags          TEXT NOT NULL CHECK (json_type(flags) = 'array'),
    tool_digest    TEXT NOT NULL,
    running        TEXT NOT NULL CHECK (json_type(running) = 'array'),
    note           TEXT NOT NULL
) STRICT;

CREATE INDEX quality_file ON quality (file, size, mtime_ns);

CREATE TABLE baselines (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    at            TEXT NOT NULL,
    operation_id  TEXT REFERENCES operations (id),
    profile       TEXT NOT NULL,
    file          TEXT NOT NULL CHECK (file <> ''),
    size          INTEGER NOT NULL CHECK (size >= 0),
    mtime_ns      INTEGER NOT NULL,
    flags         TEXT NOT NULL CHECK (json_type(flags) = 'array'),
    tool_digest   TEXT NOT NULL,
    tests         TEXT NOT NULL CHECK (json_type(tests) = 'array')
) STRICT;

CREATE INDEX baselines_file ON baselines (file, size, mtime_ns);
