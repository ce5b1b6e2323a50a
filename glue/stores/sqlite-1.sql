CREATE TABLE IF NOT EXISTS sessions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    header TEXT NOT NULL,
    updated REAL NOT NULL,
    changes INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS messages (
    number INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions(number) ON DELETE CASCADE,
    position REAL NOT NULL,
    id TEXT NOT NULL,
    role TEXT NOT NULL,
    at REAL NOT NULL,
    text TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS messages_by_position ON messages(session, position);
CREATE INDEX IF NOT EXISTS messages_by_id ON messages(session, id);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(
    text, content='messages', content_rowid='number', tokenize='unicode61 remove_diacritics 0'
);
CREATE TRIGGER IF NOT EXISTS words_added AFTER INSERT ON messages BEGIN
    INSERT INTO words(rowid, text) VALUES (new.number, new.text);
END;
CREATE TRIGGER IF NOT EXISTS words_removed AFTER DELETE ON messages BEGIN
    INSERT INTO words(words, rowid, text) VALUES ('delete', old.number, old.text);
END;
