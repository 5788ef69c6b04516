/**
 * What is promised in figures, with their units: the limits of §8, defaults of settings and fields, the wire protocol, and the
 * sizes past which a client is refused. Figures that only tune how something is done stand beside the code they tune.
 */

const KIB = 1024
const MIB = 1024 * KIB

/** Policy of a function that sets nothing itself. */
export const DEFAULT_TIMEOUT_MS = 2500
/** Simultaneous requests of one function; 0 means unlimited. */
export const DEFAULT_MAX_CONCURRENCY = 20
/**
 * Where a function sets no `max_concurrency`: calls that wait, which bounds their memory; milliseconds that each may wait; and the wait
 * of the first one beyond which further ones are refused at once (`FN_DEFAULT_MAX_QUEUE`, `FN_DEFAULT_QUEUE_TIMEOUT_MS`, `FN_DEFAULT_QUEUE_WAIT_MS`).
 */
export const DEFAULT_FUNCTION_MAX_QUEUE = 5000
export const DEFAULT_FUNCTION_QUEUE_TIMEOUT_MS = 5000
export const DEFAULT_FUNCTION_QUEUE_WAIT_MS = 1000
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
/** Milliseconds a call waits for the build or the packages of its function unless `FN_DEPS_WAIT_MS` says otherwise. */
export const DEFAULT_DEPS_WAIT_MS = 15_000

/** `Retry-After` of a call that could not wait for a build, seconds. */
export const BUILD_RETRY_AFTER_SECONDS = 2

/** Node installs at once during the start. */
export const DEFAULT_PREINSTALL_NODE_DEPS_CONCURRENCY = 4

/** Jobs that run at once, and bytes of a job's result that are kept: more than any answer but an endless one. */
export const DEFAULT_JOBS_MAX_CONCURRENCY = 2
export const DEFAULT_JOBS_MAX_RESULT_BYTES = 1024 * MIB
/** Attempts of a job, and milliseconds before the first and between two of them. */
export const JOB_MAX_ATTEMPTS = { min: 1, max: 10, default: 1 } as const
export const JOB_RETRY_DELAY_MS = { min: 0, max: 3_600_000, default: 1000 } as const
export const JOB_BACKOFF = { min: 1, max: 10, default: 1 } as const
export const MAX_JOB_DELAY_MS = 7 * 86_400_000
/** Jobs that wait or run; one more is refused. Finished ones that are kept, and for how long, ms. */
export const MAX_OPEN_JOBS = 100_000
export const KEPT_JOBS = 250
export const KEPT_JOB_MS = 86_400_000

/** Sessions of the console at once; of more, the oldest ends. */
export const MAX_SESSIONS = 1000
/** Failures after which an address has to wait, and ms that a failure counts. */
export const MAX_LOGIN_FAILURES = 5
export const LOGIN_FAILURE_MS = 300_000
/** Addresses that are remembered; of more, the one that began first is forgotten. */
export const MAX_LOGIN_ADDRESSES = 10_000
/** Bytes of the saved state of the console as JSON. */
export const UI_STORE_BYTES = 256 * KIB

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
/** Bytes of a stream that may be under way before the receiver grants more. */
export const STREAM_WINDOW_BYTES = 256 * KIB
/** Bytes beyond it that fast streams may have under way, and how many streams of a gateway's process at once. */
export const STREAM_LEAD_BYTES = 3 * STREAM_WINDOW_BYTES
export const MAX_STREAM_LEADS = 16

/** Processes of one function when its concurrency is unlimited. */
export const MAX_WORKERS_UNLIMITED = 32
/** Megabytes a worker may allocate unless `FN_WORKER_MEMORY_MB` says otherwise. */
export const DEFAULT_WORKER_MEMORY_MB = 512
/** Steps of priority that functions' processes stand below the gateway unless `FN_WORKER_NICE` says otherwise, and the most there are. */
export const DEFAULT_WORKER_NICE = 0
export const MAX_WORKER_NICE = 19
/** Default limit of processes and threads of one function with a separate user (`FN_FUNCTION_PROCESSES`). */
export const DEFAULT_FUNCTION_PROCESSES = 4096
/** Megabytes that all Lua threads may hold together unless `FN_LUA_MEMORY_MB` says otherwise. */
export const DEFAULT_LUA_MEMORY_MB = 1024
/** Threads of one Lua function: twice the cores, within these bounds. Lua code never waits, so more would only share them. */
export const LUA_THREADS = { min: 4, max: 32 } as const

/** Processes of one gateway. */
export const MAX_GATEWAY_WORKERS = 128

/** Longest request target, bytes; longer is 414. */
export const MAX_TARGET_BYTES = 8 * KIB
/** Header block of a request, bytes; larger is 431. */
export const MAX_HEADER_BYTES = 16 * KIB
/** Query parameters of a request handed to a handler. */
export const MAX_QUERY_PARAMS = 1000
/** Header names and values of a handler's answer, bytes; clients and proxies refuse more. */
export const MAX_REPLY_HEADER_BYTES = 64 * KIB
/** JSON text of a reply's head, characters; a longer one is refused unread, because parsing it would block the event loop. */
export const MAX_REPLY_HEAD_CHARS = 512 * KIB

/** Milliseconds a stop waits for running requests. */
export const DEFAULT_SHUTDOWN_TIMEOUT_MS = 10_000

/** Milliseconds in which a client must read something of a response that waits for it (`FN_RESPONSE_IDLE_TIMEOUT_MS`). */
export const DEFAULT_RESPONSE_IDLE_TIMEOUT_MS = 60_000
/** Share of the memory that request bodies may hold, and unread responses, unless `FN_BODY_MEMORY_MB` says otherwise. */
export const BODY_MEMORY_SHARE = 1 / 8
/** Bytes of responses that a client has not read beyond which the next request of its connection waits. */
export const MAX_UNREAD_BYTES = 256 * KIB
/** Bytes of one response that the gateway takes from its worker ahead of a slow client. */
export const MAX_AHEAD_BYTES = 16 * MIB

/** `edge.max_response_bytes` when unset. */
export const DEFAULT_EDGE_MAX_RESPONSE_BYTES = 2 * MIB

/** `cors.max_age` when unset, seconds. */
export const DEFAULT_CORS_MAX_AGE_SECONDS = 600

export const DEFAULT_PORT = 8080
export const DEFAULT_HOST = '127.0.0.1'
