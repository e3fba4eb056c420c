-- The first format, as its own version wrote it. Made once; never edited.
PRAGMA foreign_keys = OFF;
BEGIN TRANSACTION;
CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('fixture','v1');
CREATE TABLE session_env (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;
INSERT INTO "session_env" VALUES('019c1a2b-0000-7000-8000-000000000002','API_KEY','s3cret''"
=');
INSERT INTO "session_env" VALUES('019c1a2b-0000-7000-8000-000000000002','EMPTY','');
CREATE TABLE session_metadata (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;
INSERT INTO "session_metadata" VALUES('019c1a2b-0000-7000-8000-000000000002','colour','green');
INSERT INTO "session_metadata" VALUES('019c1a2b-0000-7000-8000-000000000002','ключ','значение');
CREATE TABLE session_mounts (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    workspace INTEGER NOT NULL CHECK (workspace IN (0, 1)),
    position INTEGER NOT NULL,
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    read_only INTEGER NOT NULL CHECK (read_only IN (0, 1)),
    PRIMARY KEY (session, workspace, position)
) STRICT, WITHOUT ROWID;
INSERT INTO "session_mounts" VALUES('019c1a2b-0000-7000-8000-000000000002',0,0,'cache','/root/.cache',0);
INSERT INTO "session_mounts" VALUES('019c1a2b-0000-7000-8000-000000000002',0,1,'/opt/data','/data',1);
INSERT INTO "session_mounts" VALUES('019c1a2b-0000-7000-8000-000000000002',1,0,'/home/dev/project','/workspace',0);
CREATE TABLE session_ports (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    container INTEGER NOT NULL,
    host INTEGER,
    fixed INTEGER NOT NULL CHECK (fixed IN (0, 1)),
    protocol TEXT NOT NULL,
    PRIMARY KEY (session, position)
) STRICT, WITHOUT ROWID;
INSERT INTO "session_ports" VALUES('019c1a2b-0000-7000-8000-000000000002',0,8080,18080,1,'tcp');
INSERT INTO "session_ports" VALUES('019c1a2b-0000-7000-8000-000000000002',1,53,NULL,0,'udp');
CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    sandbox TEXT NOT NULL UNIQUE,
    sandbox_id TEXT,
    engine TEXT NOT NULL,
    agent TEXT NOT NULL,
    template TEXT NOT NULL,
    image TEXT,
    image_id TEXT,
    status TEXT NOT NULL,
    operation TEXT,
    reason TEXT,
    created_at INTEGER NOT NULL,
    last_active INTEGER NOT NULL,
    last_connected INTEGER,
    expires_at INTEGER,
    timeout_ms INTEGER,
    idle_ms INTEGER,
    exec_count INTEGER NOT NULL,
    oom_events INTEGER NOT NULL,
    cpu_millis INTEGER,
    memory_bytes INTEGER,
    pids INTEGER,
    network TEXT NOT NULL,
    profile TEXT NOT NULL,
    run_as TEXT,
    external_origin TEXT,
    external_status TEXT,
    external_extra TEXT,
    revision INTEGER NOT NULL
) STRICT;
INSERT INTO "sessions" VALUES('019c1a2b-0000-7000-8000-000000000002','数据 会议','session-_____-00000002','9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f','docker','gemini','python','debian:stable-slim','sha256:abababababababababababababababababababababababababababababababab','saved','save_running','oom_killed',1769904000123,1769904100000,1769904050000,1769911200000,7200000,1800000,12,1,1500,2147483648,512,'none','restrictive','dev',NULL,NULL,NULL,17);
INSERT INTO "sessions" VALUES('019c1a2b-0000-7000-8000-000000000001','bugfix-123','session-bugfix-123',NULL,'docker','claude','base','debian:stable-slim',NULL,'starting','start',NULL,1769900000000,1769900000000,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,'bridge','moderate',NULL,NULL,NULL,NULL,1);
INSERT INTO "sessions" VALUES('019c1a2b-0000-7000-8000-000000000003','notebook','sb-51',NULL,'external','claude','base',NULL,NULL,'unknown',NULL,NULL,1769990000000,1769900000000,NULL,NULL,NULL,NULL,0,0,NULL,NULL,NULL,'bridge','moderate',NULL,'agent-sandbox','active','{"envdUrl":"http://x"}',2);
CREATE TABLE snapshot_excluded (
    snapshot TEXT NOT NULL REFERENCES snapshots (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    PRIMARY KEY (snapshot, position)
) STRICT, WITHOUT ROWID;
INSERT INTO "snapshot_excluded" VALUES('019c1a2c-0000-7000-8000-000000000002',0,'bind','/workspace');
INSERT INTO "snapshot_excluded" VALUES('019c1a2c-0000-7000-8000-000000000002',1,'process','node');
CREATE TABLE snapshots (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    session TEXT REFERENCES sessions (id) ON DELETE SET NULL,
    session_name TEXT NOT NULL,
    image_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    note TEXT,
    parent TEXT,
    size_bytes INTEGER NOT NULL,
    state TEXT NOT NULL
) STRICT;
INSERT INTO "snapshots" VALUES('019c1a2c-0000-7000-8000-000000000001','feature-x-20260201','019c1a2b-0000-7000-8000-000000000002','feature-x','sha256:0101010101010101010101010101010101010101010101010101010101010101',1769905000000,NULL,NULL,81234567,'ready');
INSERT INTO "snapshots" VALUES('019c1a2c-0000-7000-8000-000000000002','feature-x-20260201-2','019c1a2b-0000-7000-8000-000000000002','feature-x','sha256:0101010101010101010101010101010101010101010101010101010101010101',1769906000000,'before the rewrite','feature-x-20260201',81234567,'ready');
INSERT INTO "snapshots" VALUES('019c1a2c-0000-7000-8000-000000000003','old-20260131',NULL,'old','sha256:0101010101010101010101010101010101010101010101010101010101010101',1769907000000,NULL,NULL,81234567,'deleting');
CREATE INDEX snapshots_by_session ON snapshots (session);
PRAGMA user_version = 1;
COMMIT;
