-- Version 7: who asked for an operation, as far as that is known.
ALTER TABLE operations ADD COLUMN actor TEXT;
