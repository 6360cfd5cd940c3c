-- Version 6. Which kinds of operation and which acts there are is the program's to say, and
-- grows: neither is listed in a table any more. No row changes, so the tables stay and only
-- their text is another one, as SQLite's documentation does it (ALTER TABLE, section 7).

PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(
    sql,
    'CHECK (kind IN (''switch'', ''load'', ''unload'', ''tune'', ''probe'', ''sweep'', ''perplexity''))',
    'CHECK (kind <> '''')'
) WHERE name = 'operations';
UPDATE sqlite_schema SET sql = replace(
    sql,
    'CHECK (act IN (''choose'', ''keep'', ''switch'', ''reject'', ''measure'', ''roll_back''))',
    'CHECK (act <> '''')'
) WHERE name = 'decisions';
PRAGMA writable_schema = RESET;
