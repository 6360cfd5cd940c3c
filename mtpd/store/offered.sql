-- Version 3. What each draft of a repetition offered, where the engine traced its steps: of the
-- steps that kept all before position i, those whose draft had it.

ALTER TABLE measurements ADD COLUMN offered_per_position TEXT
    CHECK (offered_per_position IS NULL OR json_type(offered_per_position) = 'array');
