import { constants } from 'node:buffer'
import t from 'tap'
import * as limits from '../../lib/core/limits.ts'

const values = new Map<string, unknown>(Object.entries(limits))

t.test(
  `[core/limits.1, core/limits.2, core/limits.3, core/limits.4, core/limits.6, core/limits.7, core/limits.8,
  core/limits.9, core/limits.13] the values that are promised`,
  async t => {
    const promised: Partial<Record<keyof typeof limits, unknown>> = {
      INSTALL_TIMEOUT_SECONDS: 180,
      DEFAULT_GO_BUILD_TIMEOUT_SECONDS: 180,
      DEFAULT_NAMESPACE_DEPTH: 3,
      MAX_NAMESPACE_DEPTH: 5,
      MAX_ROUTE_DEPTH: 6,
      INLINE_REQUIREMENTS_LINES: 30,
      MIN_SCHEDULER_INTERVAL_SECONDS: 1,
      MIN_STATUS: 100,
      MAX_STATUS: 599,
      DEFAULT_OVERFLOW_STATUS: 429,
      DEFAULT_TIMEOUT_MS: 2500,
      DEFAULT_MAX_CONCURRENCY: 20,
      DEFAULT_MAX_BODY_BYTES: 1024 * 1024,
      MAX_PATTERN_SEGMENTS: 64,
      MAX_PATTERN_CHARS: 1024,
    }
    for (const [name, value] of Object.entries(promised)) t.equal(values.get(name), value, name)
    t.match(limits.SCHEDULER_PERSIST_SECONDS, { min: 5, max: 3600 })
  },
)

t.test('[core/limits.5] the clamps of schedule retries', async t => {
  t.same(limits.RETRY_MAX_ATTEMPTS, { min: 1, max: 10, default: 3 })
  t.same(limits.RETRY_BASE_DELAY_SECONDS, { min: 0, max: 3600, default: 1 })
  t.same(limits.RETRY_MAX_DELAY_SECONDS, { min: 0, max: 3600, default: 30 })
  t.same(limits.RETRY_JITTER, { min: 0, max: 0.5, default: 0.2 })
})

t.test('[core/limits.10] what the platform cannot hold is out of reach', async t => {
  t.ok(limits.MAX_TIMEOUT_MS <= 2 ** 31 - 1, 'a longer timer would fire at once')
  t.ok(limits.MAX_BODY_BYTES <= constants.MAX_LENGTH)
  t.ok(limits.MAX_BODY_BYTES + limits.MAX_FRAME_BYTES < 2 ** 32, 'the length word of a frame has 32 bits')
})

t.test('[core/limits.11] every number is finite and not negative, every range holds its default', async t => {
  for (const [name, value] of Object.entries(limits)) {
    if (typeof value === 'number') t.ok(Number.isFinite(value) && value >= 0, name)
    if (typeof value !== 'object' || !('min' in value) || !('max' in value)) continue
    t.ok(value.min <= value.max, name)
    if ('default' in value) t.ok(value.default >= value.min && value.default <= value.max, `${name}: default`)
  }
  t.ok(limits.DEFAULT_TIMEOUT_MS <= limits.MAX_TIMEOUT_MS)
  t.ok(limits.DEFAULT_MAX_BODY_BYTES <= limits.MAX_BODY_BYTES)
  t.ok(limits.DEFAULT_NAMESPACE_DEPTH <= limits.MAX_NAMESPACE_DEPTH)
})

t.test('[core/limits.12] limits that contain each other fit', async t => {
  t.ok(limits.MAX_TARGET_BYTES < limits.MAX_HEADER_BYTES)
  t.ok(limits.STREAM_WINDOW_BYTES < limits.MAX_FRAME_BYTES)
  t.ok(limits.MAX_PATTERN_CHARS < limits.MAX_TARGET_BYTES)
})

t.test('[core/limits.14] jobs', async t => {
  t.same(limits.JOB_MAX_ATTEMPTS, { min: 1, max: 10, default: 1 })
  t.same(limits.JOB_RETRY_DELAY_MS, { min: 0, max: 3_600_000, default: 1000 })
  t.same(limits.JOB_BACKOFF, { min: 1, max: 10, default: 1 })
  const { MAX_JOB_DELAY_MS, MAX_OPEN_JOBS, KEPT_JOBS, KEPT_JOB_MS, DEFAULT_JOBS_MAX_RESULT_BYTES } = limits
  t.same(
    [MAX_JOB_DELAY_MS, MAX_OPEN_JOBS, KEPT_JOBS, KEPT_JOB_MS, DEFAULT_JOBS_MAX_RESULT_BYTES],
    [604_800_000, 100_000, 250, 86_400_000, 1_073_741_824],
  )
})
