-- Version 10. Memory that a start was measured to take once it was loaded: what the next one of its
-- arm and fingerprint needs beside other engines.

ALTER TABLE engine_starts ADD COLUMN taken_bytes INTEGER CHECK (taken_bytes IS NULL OR taken_bytes >= 0);
