import { execFileSync } from 'node:child_process'
import { chmodSync, chownSync, existsSync, mkdirSync, writeFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { createGateway } from '../../lib/index.ts'
import { UserSignals } from '../../lib/files/user-signals.ts'
import { MEASURE_LIMIT_MS, TEMP_LOOK_MS, TempQuota, toLimits } from '../../lib/runtime/function-users.ts'
import { Guard } from '../../runtimes/daemon/guard.mjs'
import { FakeClock } from '../helpers/clock.ts'
import { injectBuilt, shareCrates } from '../helpers/compiled.ts'
import { type Language, LANGUAGES, makeRoot, PYTHON } from '../e2e/shell-handlers.ts'
import { makeTree } from '../helpers/tree.ts'
import { until } from '../helpers/worker-client.ts'

t.setTimeout(200_000)

const NO_ROOT =
  process.platform !== 'linux' || process.geteuid?.() !== 0 ? 'changing users needs Linux and root' : false

t.test('[runtime/quotas.1] quotas are off unless they are set, but for a limit of processes', t => {
  t.same(toLimits({ functionProcesses: null, functionOpenFiles: null, functionTempMb: null }), { nproc: 4096 })
  const all = toLimits({ functionProcesses: 100, functionOpenFiles: 64, functionTempMb: 2 })
  t.same(all, { nproc: 100, nofile: 64, fsize: 2 * 1024 * 1024 })
  t.end()
})

async function serve(t: Test, languages: readonly Language[], settings: object) {
  const tree = makeRoot(t, languages)
  const logs: string[] = []
  const gateway = await createGateway({
    functionsRoot: tree.root,
    runtimes: [...new Set(languages.map(language => (language === 'ts' ? 'node' : language)))],
    binaries: { python: PYTHON },
    isolation: 'user',
    isolationFiles: 'close',
    isolationUids: '38000-38999',
    env: { ...process.env, ...shareCrates() },
    ...settings,
  } as never)
  t.teardown(() => gateway.close())
  gateway.on('log', ({ message }) => logs.push(message))
  const run = async (language: Language, body: string): Promise<string> => {
    const answer = await injectBuilt(gateway, { method: 'POST', url: `/${language}`, body })
    return answer.status === 200 ? answer.text().trim() : `status ${answer.status}: ${answer.text()}`
  }
  return { gateway, logs, run }
}

/** Bit of the signal that ends a process for a file beyond its limit. */
const SIGXFSZ = 1n << 24n

/** Go compiles its standard library once for each user. */
const QUICK = LANGUAGES.filter(language => language !== 'rust' && language !== 'go')

t.test(
  '[runtime/quotas.2, runtime/quotas.3] processes, open files and sizes of files are limited in every language',
  { skip: NO_ROOT },
  async t => {
    const { run } = await serve(t, QUICK, { functionProcesses: 100, functionOpenFiles: 64, functionTempMb: 2 })
    const exceedAll = async (language: Language): Promise<void> => {
      const limits = await run(language, 'cat /proc/self/limits')
      t.match(limits, /^Max processes\s+100\s+100\s/m, language)
      t.match(limits, /^Max open files\s+64\s+64\s/m, language)
      t.match(limits, /^Max file size\s+2097152\s+2097152\s/m, language)
      const forks = 'i=0; while [ $i -lt 200 ]; do sleep 3 & i=$((i+1)); done 2>&1; echo survived'
      t.match(await run(language, forks), /annot fork|fork: |Resource temporarily/, `${language}: a fork bomb ends`)
      t.equal(await run(language, 'echo again'), 'again', `${language} goes on`)
      t.match(
        await run(language, 'head -c 3000000 /dev/zero > $TMPDIR/large; stat -c %s $TMPDIR/large'),
        /2097152/,
        language,
      )
      const ignored = /^SigIgn:\s+(\S+)$/.exec(await run(language, 'grep ^SigIgn /proc/$PPID/status'))?.[1]
      t.ok(BigInt(`0x${ignored}`) & SIGXFSZ, `${language}: a file that is too large is an error of the write`)
      t.equal(await run(language, 'ulimit -n 1000 2>/dev/null; ulimit -n'), '64', `${language}: and cannot be raised`)
    }
    await Promise.all(QUICK.map(exceedAll))
  },
)

t.test('[runtime/quotas.2] programs of go and rust begin with their limits', { skip: NO_ROOT }, t => {
  const user = { uid: 38_888, folder: '/', limits: { nproc: 200, nofile: 64, fsize: 1024 } }
  const [command, args] = new Guard().wrap('/bin/cat', ['/proc/self/limits', '/proc/self/status'], 0, user)
  const text = execFileSync(command, args, { encoding: 'utf8' })
  t.match(text, /^Max processes\s+200\s+200\s/m)
  t.match(text, /^Max open files\s+64\s+64\s/m)
  t.match(text, /^Uid:\s+38888\s/m)
  t.ok(BigInt(`0x${/^SigIgn:\s+(\S+)$/m.exec(text)![1]}`) & SIGXFSZ)
  t.end()
})

t.test('[runtime/quotas.4] users are measured one after the other, one that takes too long as one beyond', async t => {
  const clock = new FakeClock()
  const seen: string[] = []
  const quota = new TempQuota({
    clock,
    limitMb: 5,
    signals: {
      signal: async (uid, signals) => {
        seen.push(`${uid}: ${signals}`)
        return true
      },
    },
    folders: new Map([
      [1, '/a'],
      [2, '/b'],
      [3, '/c'],
    ]),
    onExceeded: (uid, usedMb) => seen.push(`${uid} has ${usedMb}`),
    run: (uid, script, [folder]) => {
      const isMeasured = script.includes('du ')
      seen.push(isMeasured ? folder! : `${uid}: empty ${folder}`)
      return isMeasured && uid === 3 ? new Promise(() => {}) : Promise.resolve(uid === 2 ? '7000\n' : '5120\n')
    },
  })
  clock.advance(TEMP_LOOK_MS)
  await until(() => seen.length === 6)
  const first = ['/a/tmp', '/b/tmp', '2: KILL,-1', '2: empty /b/tmp', '2 has 7', '/c/tmp']
  t.same(seen, first)
  clock.advance(MEASURE_LIMIT_MS)
  await until(() => seen.length === 9)
  t.same(seen.splice(0), [...first, '3: KILL,-1', '3: empty /c/tmp', '3 has null'])
  await new Promise(setImmediate)
  quota.close()
  clock.advance(TEMP_LOOK_MS)
  t.equal(seen.length, 0)
})

t.test(
  '[runtime/quotas.4] beyond the limit files are deleted, closed ones too, and the processes end',
  { skip: NO_ROOT },
  async t => {
    const tree = makeTree({ 'victim/file': 'x' })
    t.teardown(() => tree.cleanup())
    chmodSync(tree.root, 0o755)
    const uid = 38_777
    mkdirSync(tree.path('u/tmp/closed/deep'), { recursive: true })
    writeFileSync(tree.path('u/tmp/closed/deep/file'), Buffer.alloc(3_000_000, 1))
    for (const name of ['u', 'u/tmp', 'u/tmp/closed', 'u/tmp/closed/deep', 'u/tmp/closed/deep/file'])
      chownSync(tree.path(name), uid, uid)
    chmodSync(tree.path('u/tmp/closed'), 0)
    const clock = new FakeClock()
    const seen: (number | null)[] = []
    const signals = new UserSignals()
    const quota = new TempQuota({
      clock,
      limitMb: 2,
      signals,
      folders: new Map([[uid, tree.path('u')]]),
      onExceeded: (_, usedMb) => seen.push(usedMb),
    })
    t.teardown(() => {
      quota.close()
      signals.close()
    })
    clock.advance(TEMP_LOOK_MS)
    await until(() => seen.length > 0, 20_000)
    t.equal(seen[0], 3)
    t.notOk(existsSync(tree.path('u/tmp/closed')))
    t.ok(existsSync(tree.path('u/tmp')))
  },
)

t.test(
  '[runtime/quotas.4] the log names a function that fills its folder, and the next call is served',
  { skip: NO_ROOT },
  async t => {
    const { run, logs } = await serve(t, ['node'], { functionTempMb: 1 })
    const fill = 'for i in 1 2 3 4; do head -c 900000 /dev/zero > $TMPDIR/$i; done; ls $TMPDIR | wc -l'
    t.equal(await run('node', fill), '4')
    await until(() => logs.some(line => line.includes('FN_FUNCTION_TEMP_MB')), 30_000)
    t.match(
      logs.find(line => line.includes('FN_FUNCTION_TEMP_MB')),
      /node\/node@default: temporary files take 4 MB of 1 \(FN_FUNCTION_TEMP_MB\): the gateway killed its processes and deleted the files/,
    )
    t.equal(await run('node', 'ls $TMPDIR | wc -l'), '0')
  },
)
