-- Version 8. What live requests taught of a model, and what the policy remembers: a state that
-- is replaced, not a history. schema_version says how to read it.

CREATE TABLE live_states (
    profile         TEXT PRIMARY KEY CHECK (profile <> ''),
    at              TEXT NOT NULL,
    schema_version  INTEGER NOT NULL CHECK (schema_version >= 1),
    state           TEXT NOT NULL CHECK (json_type(state) = 'object')
) STRICT, WITHOUT ROWID;
