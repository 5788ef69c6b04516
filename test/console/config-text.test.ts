import t from 'tap'
import {
  getField,
  lineOfField,
  parseConfigText,
  parseRefusal,
  setField,
  toChange,
  toConfigText,
} from '../../console/pages/function/config-text.ts'
import { toHoldings, toPolicyName } from '../../console/pages/function/policy-source.ts'

const CONFIG = { timeout_ms: 1000, invoke: { methods: ['GET'], summary: 'x' }, worker_pool: { max_workers: 2 } }

t.test('[console/function.6] fields are read and set where they are, and go with what is left empty', async t => {
  t.equal(getField(CONFIG, ['worker_pool', 'max_workers']), 2)
  t.equal(getField(CONFIG, ['worker_pool', 'min_warm']), undefined)
  t.equal(getField(CONFIG, ['timeout_ms', 'x']), undefined)
  t.equal(getField({}, ['constructor']), undefined)
  t.same(Object.keys(setField(CONFIG, ['timeout_ms'], 5)), Object.keys(CONFIG), 'a field keeps its place')
  t.same(setField(CONFIG, ['worker_pool', 'max_workers'], undefined), {
    timeout_ms: 1000,
    invoke: { methods: ['GET'], summary: 'x' },
  })
  t.same(setField({}, ['edge', 'base_url'], 'https://a'), { edge: { base_url: 'https://a' } })
})

t.test(
  '[console/function.6] what changed is sent: merged blocks by field, others whole, null for what is gone',
  async t => {
    t.same(toChange(CONFIG, CONFIG), {})
    t.same(toChange(CONFIG, setField(CONFIG, ['timeout_ms'], undefined)), { timeout_ms: null })
    t.same(toChange(CONFIG, setField(CONFIG, ['invoke', 'summary'], undefined)), { invoke: { summary: null } })
    t.same(toChange(CONFIG, setField(CONFIG, ['worker_pool', 'min_warm'], 1)), {
      worker_pool: { max_workers: 2, min_warm: 1 },
    })
    const { invoke: _, ...without } = CONFIG
    t.same(toChange(CONFIG, without), { invoke: { methods: null, summary: null } })
    t.same(toChange({}, { invoke: { summary: 'y' } }), { invoke: { summary: 'y' } })
    t.same(toChange(without, { ...without, worker_pool: null }), { worker_pool: null })
  },
)

t.test('[console/function.7] a text that is no JSON is told with its line', async t => {
  t.same(parseConfigText(toConfigText(CONFIG)), { config: CONFIG })
  t.same(parseConfigText(toConfigText(null)), { config: {} })
  for (const text of ['[]', '1', 'null']) t.match(parseConfigText(text), { line: 1, message: /object/ })
  t.match(parseConfigText('{\n  "a": 1,\n  "b" 2\n}'), { line: 3 })
  t.match(parseConfigText('{\n  "a": 1,\n'), { line: 3 }, 'cut off')
})

t.test('[console/function.7] a refusal is told field by field', async t => {
  const message =
    'body: timeout_ms must be an integer from 1 to 86400000, got "x; y" (string); body: worker_pool.max_workers must be at least 1'
  t.same(
    [...parseRefusal(message)],
    [
      ['timeout_ms', 'must be an integer from 1 to 86400000, got "x; y" (string)'],
      ['worker_pool.max_workers', 'must be at least 1'],
    ],
  )
  t.same(
    [...parseRefusal('a/fn.config.json: invoke.routes[1] must begin with /')],
    [['invoke.routes', 'must begin with /']],
  )
  t.same([...parseRefusal('something else; of two parts')], [['', 'something else; of two parts']])
  const text = toConfigText(CONFIG)
  t.equal(lineOfField(text, 'timeout_ms'), 2)
  t.equal(lineOfField(text, 'worker_pool.max_workers'), 10)
  t.equal(lineOfField(text, 'worker_pool.gone'), 9)
  t.equal(lineOfField(text, 'gone'), 1)
})

t.test('[console/function.6] what holds, with the file that says so', async t => {
  const holdings = toHoldings({
    policy: {
      timeout_ms: 5,
      worker_pool: { max_workers: 2, enabled: true },
      methods: ['GET', 'PUT'],
      cors: null,
      allow_hosts: [],
    },
    policy_sources: {
      timeout_ms: { file: 'fn.config.json' },
      worker_pool: { file: 'a/fn.config.json' },
      cors: { file: null },
    },
  })
  t.same(
    holdings.map(({ name, value, file }) => [name, value, file]),
    [
      ['timeout_ms', '5', 'fn.config.json'],
      ['worker_pool.max_workers', '2', 'a/fn.config.json'],
      ['worker_pool.enabled', 'true', 'a/fn.config.json'],
      ['methods', 'GET, PUT', null],
      ['cors', 'not set', null],
      ['allow_hosts', 'none', null],
    ],
  )
  t.equal(toPolicyName(['invoke', 'methods']), 'methods')
  t.equal(toPolicyName(['worker_pool', 'enabled']), 'worker_pool.enabled')
})
