-- Version 2. The full hash of a model's file, by what tells the file apart at once. A file that
-- was replaced keeps its row: older measurements name it by size and time.

CREATE TABLE model_files (
    path       TEXT NOT NULL CHECK (path <> ''),
    size       INTEGER NOT NULL CHECK (size >= 0),
    mtime_ns   INTEGER NOT NULL,
    sha256     TEXT NOT NULL CHECK (length(sha256) = 64),
    hashed_at  TEXT NOT NULL,
    PRIMARY KEY (path, size, mtime_ns)
) STRICT, WITHOUT ROWID;
