/**
 * The cases of `conformance`, run against every language through a real gateway and real workers. The expectation is the same for
 * all; where the specification gives a language less, the cell says why and is reported as skipped.
 */

import { existsSync } from 'node:fs'
import t, { type Test } from 'tap'
import { CaseBed, type CaseServer } from '../../conformance/case.ts'
import { CASES } from '../../conformance/cases.ts'
import { LATE_MS, SHORT_TIMEOUT_MS } from '../../conformance/fixture-tree.ts'
import { shareCrates } from '../helpers/compiled.ts'
import { type Bed, makeBed, TESTED } from '../helpers/conformance.ts'
import { childrenOf, isAlive, listProcesses, placeOf } from '../helpers/processes.ts'
import { until } from '../helpers/worker-client.ts'

process.env.FNGW_TEST_HOST_ONLY = 'not for functions'
process.env.FN_ADMIN_TOKEN = 'not for functions either'

// The many processes of a busy machine may take longer than the 30 seconds of a file that is run by itself.
t.setTimeout(180_000)

/** Steps that processes of functions stand back. */
const NICE = 1

let bed: Bed
t.before(async () => {
  bed = await makeBed({ ...shareCrates(), FN_WORKER_NICE: String(NICE) })
})

/** Cases of one test: a subtest per language; languages whose program is missing are skipped with that reason. */
function caseBed(t: Test): CaseBed {
  const each: CaseServer['each'] = async (lacks, check) => {
    for (const language of TESTED) {
      const reason = bed.missing.get(language.label) ?? lacks[language.label]
      await t.test(language.label, { skip: reason ?? false }, t => check(t, language))
    }
  }
  return new CaseBed({
    host: `127.0.0.1:${bed.port}`,
    isLocal: true,
    languages: bed.languages,
    inside: {
      logs: bed.logs,
      pathOf: name => bed.tree.path(name),
      until,
      invoke: (name, options) => bed.gateway.invoke(name, options),
    },
    send: bed.send,
    each,
  })
}

for (const { title, run } of CASES) t.test(title, async t => run(caseBed(t)))

t.test('[jobs/jobs.6, jobs/jobs.11] jobs run in every language, and a canceled one does nothing more', async t => {
  const { jobs } = bed.gateway
  const reached = (id: string, ...states: string[]): Promise<void> =>
    new Promise((resolve, reject) => {
      const look = (state: string): void => {
        if (states.includes(state)) resolve()
      }
      bed.gateway.on('job', event => {
        if (event.id === id) look(event.state)
      })
      // It may have come there before anybody listened.
      jobs.get(id).then(({ status }) => look(status), reject)
    })
  const from = bed.logs.length
  await Promise.all(
    bed.languages.map(async ({ label, runtime }) => {
      const name = `${label}/all`
      const echo = (await jobs.create({ name, runtime, headers: { 'x-do': 'echo' }, context: { by: 'me' } })).record
      await reached(echo.id, 'done', 'failed')
      const { result } = await jobs.result(echo.id)
      let text = ''
      for await (const piece of result!.body) text += String(piece)
      const event = JSON.parse(text) as { context: { user: unknown; trigger: unknown } }
      const trigger = { type: 'job', id: echo.id, attempt: 1, max_attempts: 1 }
      t.match(event.context, { user: { by: 'me' }, trigger }, label)

      const file = bed.tree.path(`${label}-job.txt`)
      const query = { ms: LATE_MS, n: `${label}-job`, file }
      const late = (await jobs.create({ name, runtime, headers: { 'x-do': 'late' }, query })).record
      const pass = (ms: number) =>
        bed.send({
          path: `/${label}/short?ms=${ms}&n=pass&file=${encodeURIComponent(bed.tree.path(`${label}-pass.txt`))}`,
          headers: { 'x-do': 'late' },
        })
      await reached(late.id, 'running')
      await pass(SHORT_TIMEOUT_MS / 3)
      t.match(await jobs.cancel(late.id), { deleted: false, record: { status: 'canceled' } }, label)
      // Calls that take longer together than the handler would have.
      for (let waited = 0; waited < LATE_MS + 200; waited += SHORT_TIMEOUT_MS / 3) await pass(SHORT_TIMEOUT_MS / 3)
      t.notOk(existsSync(file), `${label}: wrote nothing after its end`)
      t.equal(
        (await bed.send({ path: `/${label}/all`, headers: { 'x-do': 'echo' } })).status,
        200,
        `${label}: the next call`,
      )
    }),
  )
  const said = bed.logs
    .slice(from)
    .map(({ message }) => message)
    .join('')
  for (const { label } of bed.languages) t.notMatch(said, `late ${label}-job`, `${label}: said nothing after its end`)
})

t.test(
  '[runtimes/conformance.11, runtime/daemon.20] a worker leads its group in the session of its daemon, and stands back',
  async t => {
    if (process.platform !== 'linux') return t.pass('there is no /proc to tell')
    for (const { label } of bed.languages) {
      const answer = await bed.send({ path: `/${label}/all`, headers: { 'x-do': 'echo' } })
      t.equal(answer.status, 200, label)
    }
    const nice = Math.min(19, placeOf(process.pid).nice + NICE)
    type Shown = { daemons: { pid: number }[]; workers: { key: string; pid: number | null }[] }
    const look = async () => (await bed.gateway.inject('/_fn/workers')).json() as { runtimes: Record<string, Shown> }
    let { runtimes } = await look()
    // A worker that waited for its program was offered before its process was there: which it is follows.
    await until(async () => {
      runtimes = (await look()).runtimes
      const isTold = ({ workers }: Shown) => workers.every(({ pid }) => pid !== null)
      // A thread of this process is no process.
      return Object.entries(runtimes).every(([name, shown]) => name === 'lua' || isTold(shown))
    })
    for (const { label, runtime } of bed.languages) {
      if (runtime === 'lua') continue
      const { daemons, workers } = runtimes[runtime]!
      const daemon = daemons[0]!.pid
      t.match(placeOf(daemon), { group: daemon, session: daemon, terminal: 0, nice }, `${runtime}: the daemon`)
      const own = workers.filter(({ key }) => key.startsWith(`${runtime}/${label}/`))
      t.ok(own.length > 0, `${label}: workers`)
      for (const { pid } of own as { pid: number }[]) {
        const place = { group: pid, session: daemon, terminal: 0, nice }
        t.match(placeOf(pid), place, label)
        const children = childrenOf(pid)
        t.ok(children.length > 0, `${label}: its parent is its own`)
        for (const child of children) t.match(placeOf(child), place, `${label}: whoever runs the handler`)
      }
    }
  },
)

t.test('[runtimes/conformance.10] closing the gateway ends every process', async t => {
  const pids = listProcesses()
  const daemons = new Set(bed.languages.map(({ runtime }) => runtime).filter(runtime => runtime !== 'lua'))
  t.ok(pids.length > daemons.size, `${pids.length} daemons and workers`)
  await bed.close()
  await until(() => !pids.some(isAlive))
})
