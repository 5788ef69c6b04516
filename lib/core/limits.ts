/**
 * Every number of the gateway, with its unit. Spec: §8.
 * Other modules import from here and never repeat a figure.
 */

const KIB = 1024
const MIB = 1024 * KIB

/** Policy of a function that sets nothing itself. */
export const DEFAULT_TIMEOUT_MS = 2500
/** Simultaneous requests of one function; 0 means unlimited. */
export const DEFAULT_MAX_CONCURRENCY = 20
/** Bytes of a request body. */
export const DEFAULT_MAX_BODY_BYTES = MIB

/** Largest `timeout_ms`: 24 hours; a larger delay would overflow the timer (2^31 - 1 ms). */
export const MAX_TIMEOUT_MS = 86_400_000
/** Largest `max_body_bytes`: one body must fit one Buffer comfortably. */
export const MAX_BODY_BYTES = 1024 * MIB

/** `worker_pool` defaults (§2.8). */
export const DEFAULT_MAX_QUEUE = 0
export const DEFAULT_QUEUE_TIMEOUT_MS = 0
export const DEFAULT_QUEUE_POLL_MS = 20
export const DEFAULT_IDLE_TTL_SECONDS = 300
export const DEFAULT_OVERFLOW_STATUS = 429

/** `keep_warm` defaults (§2.9). */
export const DEFAULT_KEEP_WARM_MIN_WARM = 1
export const DEFAULT_PING_EVERY_SECONDS = 45

/** Seconds a dependency install may take (§2.16). */
export const INSTALL_TIMEOUT_SECONDS = 180
/** Seconds a Go build may take unless `GO_BUILD_TIMEOUT_S` says otherwise. */
export const DEFAULT_GO_BUILD_TIMEOUT_SECONDS = 180

/** `Retry-After` of a call that could not wait for a build, seconds. */
export const BUILD_RETRY_AFTER_SECONDS = 2

/** Node installs at once during the start. */
export const DEFAULT_PREINSTALL_NODE_DEPS_CONCURRENCY = 4

/** Jobs that run at once, and bytes of a stored job result. */
export const DEFAULT_JOBS_MAX_CONCURRENCY = 2
export const DEFAULT_JOBS_MAX_RESULT_BYTES = 256 * KIB

/** Name segments below a runtime folder. */
export const DEFAULT_NAMESPACE_DEPTH = 3
export const MAX_NAMESPACE_DEPTH = 5
/** Folder levels of zero-config file routes; the seventh is skipped with a warning. */
export const MAX_ROUTE_DEPTH = 6
/** Segments and characters of a route pattern: they bound the depth of the route tree. */
export const MAX_PATTERN_SEGMENTS = 64
export const MAX_PATTERN_CHARS = 1024
/** Lines of a python handler searched for `#@requirements`. */
export const INLINE_REQUIREMENTS_LINES = 30
/** Lines of a handler searched for `@summary` and the other hints. */
export const HINT_LINES = 80
/** Bytes of a config file; a larger one is refused unread. */
export const MAX_CONFIG_FILE_BYTES = MIB
/** Nesting of a JSON config file; a deeper one is refused. */
export const MAX_JSON_DEPTH = 64

/** Schedule retry clamps (§2.13). */
export const RETRY_MAX_ATTEMPTS = { min: 1, max: 10, default: 3 } as const
export const RETRY_BASE_DELAY_SECONDS = { min: 0, max: 3600, default: 1 } as const
export const RETRY_MAX_DELAY_SECONDS = { min: 0, max: 3600, default: 30 } as const
export const RETRY_JITTER = { min: 0, max: 0.5, default: 0.2 } as const
/** Scheduler tick and flush (§2.15), seconds. */
export const MIN_SCHEDULER_INTERVAL_SECONDS = 1
export const SCHEDULER_PERSIST_SECONDS = { min: 5, max: 3600, default: 15 } as const

/** Status range of a handler response. */
export const MIN_STATUS = 100
export const MAX_STATUS = 599

/** Wire protocol (page spec/runtime/wire-protocol.md). */
export const PROTOCOL_VERSION = 1
/** Largest frame, bytes after the length word; a connection adds its function's `max_body_bytes`. */
export const MAX_FRAME_BYTES = 16 * MIB
/** Largest body that travels in one `reply`; a larger one is sent as chunks. */
export const MAX_REPLY_BODY_BYTES = MIB
/** Bytes of a stream that may be under way before the receiver grants more. */
export const STREAM_WINDOW_BYTES = 256 * KIB

/** Processes of one function when its concurrency is unlimited. */
export const MAX_WORKERS_UNLIMITED = 32
/** Megabytes a worker may allocate unless `FN_WORKER_MEMORY_MB` says otherwise. */
export const DEFAULT_WORKER_MEMORY_MB = 512
/** Threads of one Lua function: twice the cores, within these bounds. Lua code never waits, so more would only share them. */
export const LUA_THREADS = { min: 4, max: 32 } as const

/** Captured output of one call and stream, bytes; what follows is dropped with a note. */
export const MAX_CAPTURED_OUTPUT_BYTES = 64 * KIB
/** Longest `X-Fn-Stdout` or `X-Fn-Stderr` preview, bytes. */
export const OUTPUT_PREVIEW_BYTES = KIB

/** Longest request target, bytes; longer is 414. */
export const MAX_TARGET_BYTES = 8 * KIB
/** Header block of a request, bytes; larger is 431. */
export const MAX_HEADER_BYTES = 16 * KIB
/** Query parameters of a request handed to a handler. */
export const MAX_QUERY_PARAMS = 1000
/** Milliseconds a client has to send its header block, and the whole request. */
export const HEADERS_TIMEOUT_MS = 15_000
export const REQUEST_TIMEOUT_MS = 60_000
/**
 * Milliseconds an idle connection is kept: longer than load balancers keep theirs (60 s), which would send a request into
 * a connection that is just being closed. Clients are told less, for the same reason.
 */
export const KEEP_ALIVE_TIMEOUT_MS = 65_000
export const KEEP_ALIVE_RESERVE_MS = 5000
/** Unanswered requests of one connection from which on nothing more is read from it, until half of them are answered. */
export const MAX_OPEN_EXCHANGES = 64
/** Requests of one connection after which the others get their turn. */
export const REQUESTS_PER_TURN = 256
/** Descriptors that clients may not take, so that workers, files and reloads have some: a share of the limit, and at least so many. */
export const RESERVED_DESCRIPTORS = { share: 0.1, min: 64 } as const
/** Milliseconds between two words about refused connections. */
export const REFUSED_NOTE_MS = 10_000
/** Milliseconds between two looks for connections past those limits. */
export const CONNECTION_CHECK_INTERVAL_MS = 1000
/** Declared bytes of a refused body that are read and dropped to keep the connection; with more it closes. */
export const DISCARD_BODY_BYTES = 64 * KIB
/** Milliseconds a stopping gateway waits for a last request on a kept connection before it closes it, and looks again. */
export const DRAIN_SWEEP_MS = 50
/** Milliseconds a refused upload may go on after its answer, so that the client can read it before the close. */
export const LINGER_MS = 1000
/** Distinct header names remembered as prepared text; later ones are read without preparation. */
export const KNOWN_HEADER_NAMES = 512
/** Reply heads remembered as checked, and the longest one that is, characters. */
export const KNOWN_REPLY_HEADS = 256
export const KNOWN_REPLY_HEAD_CHARS = 1024
/** Milliseconds a client may take nothing of an answer that waits for it. */
export const WRITE_STALL_TIMEOUT_MS = 60_000
/** Header names and values of a handler's answer, bytes; clients and proxies refuse more. */
export const MAX_REPLY_HEADER_BYTES = 64 * KIB
/** JSON text of a reply's head, characters; a longer one is refused unread, because reading it would hold up everybody. */
export const MAX_REPLY_HEAD_CHARS = 512 * KIB
/** Longest body that is joined with its head into one write, bytes. */
export const JOINED_BODY_BYTES = 16 * KIB

/** Static assets up to this size are kept in memory, so many bytes and files of them in all. */
export const MAX_CACHED_ASSET_BYTES = MIB
export const ASSET_CACHE_BYTES = 64 * MIB
export const ASSET_CACHE_FILES = 4096
/** Bytes of a larger one that are read at once. */
export const ASSET_CHUNK_BYTES = 256 * KIB
/** A file changed less than so many milliseconds ago is not kept: its next change may bear the same time. */
export const ASSET_SETTLE_MS = 50
/** Milliseconds for which a list of the names in the assets directory may stand for a look at the disk. */
export const ASSET_LISTING_MS = 50
/** A `.br` or `.gz` file may be so many milliseconds older than what it compresses; an older one is out of date. */
export const ASSET_SIBLING_SLACK_MS = 2000
/** Seconds a file with a hash in its name may be kept by clients: a year. */
export const IMMUTABLE_MAX_AGE_SECONDS = 31_536_000
/** `Accept-Encoding` texts remembered as read. */
export const KNOWN_ACCEPT_ENCODINGS = 64

/** Milliseconds a stop waits for running requests. */
export const DEFAULT_SHUTDOWN_TIMEOUT_MS = 10_000

/** `edge.max_response_bytes` when unset. */
export const DEFAULT_EDGE_MAX_RESPONSE_BYTES = 2 * MIB
/** Characters of an edge target, and times a path is unescaped to see what it may mean to a server behind the upstream. */
export const MAX_EDGE_URL_CHARS = 16 * KIB
export const MAX_PATH_DECODINGS = 8
/** The start of an upstream's answer that is held back, so that what ends or fails soon is answered whole: bytes, ms. */
export const EDGE_HOLD_BYTES = 64 * KIB
export const EDGE_HOLD_MS = 25
/** Bytes of an upstream's answer that may be under way to a slow client before the upstream has to wait. */
export const EDGE_WINDOW_BYTES = 64 * KIB
/** Content codings of one answer that are undone to count its length. */
export const MAX_EDGE_CODINGS = 4
/** Connections to one upstream at once, idle ones kept, and how long they are, ms. */
export const EDGE_CONNECTIONS = { max: 256, idle: 8, idleMs: 4000 } as const
/** Name look-ups at once: the system's resolver holds a thread of the pool that files need too. */
export const EDGE_LOOKUPS = 2
/** Addresses of one upstream that are tried. */
export const EDGE_ADDRESSES = 8

/** `cors.max_age` when unset, seconds. */
export const DEFAULT_CORS_MAX_AGE_SECONDS = 600

export const DEFAULT_PORT = 8080
export const DEFAULT_HOST = '127.0.0.1'
