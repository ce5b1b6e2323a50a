CREATE TABLE glue_sessions (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    header TEXT NOT NULL,
    updated DOUBLE PRECISION NOT NULL,
    changes BIGINT NOT NULL DEFAULT 0,
    holder TEXT,
    token BIGINT NOT NULL DEFAULT 0,
    expires TIMESTAMPTZ
);
CREATE TABLE glue_messages (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session BIGINT NOT NULL REFERENCES glue_sessions(number) ON DELETE CASCADE,
    position DOUBLE PRECISION NOT NULL,
    id TEXT NOT NULL,
    role TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    excluded BOOLEAN NOT NULL,
    body TEXT NOT NULL,
    words TSVECTOR NOT NULL
);
CREATE INDEX glue_messages_by_position ON glue_messages(session, position);
CREATE INDEX glue_messages_by_id ON glue_messages(session, id);
CREATE INDEX glue_messages_by_word ON glue_messages USING gin(words);
