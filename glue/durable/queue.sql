CREATE TABLE IF NOT EXISTS glue_queue (version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS glue_maps (
    id TEXT PRIMARY KEY,
    queue TEXT NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    usd_budget DOUBLE PRECISION,
    token_budget DOUBLE PRECISION,
    usd DOUBLE PRECISION NOT NULL DEFAULT 0,
    tokens DOUBLE PRECISION NOT NULL DEFAULT 0,
    requests BIGINT NOT NULL DEFAULT 0,
    held_usd DOUBLE PRECISION NOT NULL DEFAULT 0,
    held_tokens DOUBLE PRECISION NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS glue_rows (
    id TEXT PRIMARY KEY,
    map TEXT NOT NULL,
    number BIGINT NOT NULL,
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    task TEXT NOT NULL,
    worker TEXT,
    claim TEXT,
    claims INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    lost INTEGER NOT NULL DEFAULT 0,
    mark TEXT,
    held_usd DOUBLE PRECISION NOT NULL DEFAULT 0,
    held_tokens DOUBLE PRECISION NOT NULL DEFAULT 0,
    outcome TEXT,
    cost DOUBLE PRECISION,
    result TEXT,
    run TEXT,
    ended DOUBLE PRECISION
);
CREATE INDEX IF NOT EXISTS glue_rows_waiting ON glue_rows(queue, number) WHERE state = 'waiting';
CREATE INDEX IF NOT EXISTS glue_rows_running ON glue_rows(queue, worker) WHERE state = 'running';
CREATE INDEX IF NOT EXISTS glue_rows_ended ON glue_rows(map) WHERE state = 'ended';
CREATE INDEX IF NOT EXISTS glue_rows_by_time ON glue_rows(queue, ended);
CREATE TABLE IF NOT EXISTS glue_workers (
    id TEXT PRIMARY KEY,
    queue TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    concurrency INTEGER NOT NULL,
    lease DOUBLE PRECISION NOT NULL,
    seen DOUBLE PRECISION NOT NULL
);
CREATE TABLE IF NOT EXISTS glue_meters (
    name TEXT PRIMARY KEY,
    free DOUBLE PRECISION NOT NULL,
    mean DOUBLE PRECISION NOT NULL
);
CREATE TABLE IF NOT EXISTS glue_cooldowns (
    name TEXT PRIMARY KEY,
    until DOUBLE PRECISION
);
