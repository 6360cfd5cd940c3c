-- Version 4. Device memory that was there for an engine: an arm that did not fit is tried again
-- where there is clearly more.

ALTER TABLE engine_starts ADD COLUMN room_bytes INTEGER CHECK (room_bytes IS NULL OR room_bytes >= 0);
