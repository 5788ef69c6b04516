/** Processes that functions detach, at each level of FN_ISOLATION. */

import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { commandOf, isRunning, statusOf } from '../helpers/processes.ts'
import { LANGUAGES, type Language, run, serve } from './shell-handlers.ts'
import { until } from '../helpers/worker-client.ts'

t.setTimeout(240_000)

const NO_ROOT =
  process.platform !== 'linux' || process.geteuid?.() !== 0 ? 'changing users needs Linux and root' : false

/** Starts processes in sessions of their own, without a parent, without an environment, and without both, and waits. */
const DETACH = (file: string): string => {
  const sleep = `sh -c "echo \\$\\$ >> ${file}; exec sleep 1000" > /dev/null 2>&1 < /dev/null`
  const bare = 'env -i PATH="$PATH"'
  return `setsid ${sleep} & ${bare} setsid ${sleep} & (setsid ${sleep} &); (${bare} setsid ${sleep} &); while [ $(wc -l < ${file}) -lt 4 ]; do sleep 0.01; done; `
}
/** Forks and exits without pause, each time in a session of its own: its process id is never the one that was seen. */
const RUN_AWAY = `perl -e 'use POSIX; %ENV = (); while (1) { exit if fork; POSIX::setsid() }' > /dev/null 2>&1 < /dev/null &`
const NO_PERL = !existsSync('/usr/bin/perl')

/** Names of the programs that run as a user. */
function namesOf(uid: number): string[] {
  return readdirSync('/proc').flatMap(pid => {
    const status = /^\d+$/.test(pid) ? statusOf(Number(pid)) : ''
    const isIts = new RegExp(`^Uid:\\s+${uid}\\s`, 'm').test(status) && !/^State:\s+[ZX]/m.test(status)
    return isIts ? [/^Name:\s+(.*)$/m.exec(status)![1]!] : []
  })
}

for (const isolation of ['process', 'user'] as const) {
  t.test(
    `[runtime/daemon.22, runtime/isolation.18] ${isolation}: processes that a call detached end with its worker`,
    { skip: isolation === 'user' ? NO_ROOT : process.platform !== 'linux' && 'it needs /proc' },
    async t => {
      const languages = LANGUAGES.filter(
        language => language !== 'rust' && (isolation === 'process' || language !== 'go'),
      )
      const { gateway, root } = await serve(t, languages, {
        isolation,
        isolationFiles: 'close',
        isolationUids: '37000-37999',
      })
      const folder = mkdtempSync(join(tmpdir(), 'fngw-detached-'))
      t.teardown(() => rmSync(folder, { recursive: true, force: true }))
      chmodSync(folder, 0o777)
      for (const language of languages) {
        const config = '{"timeout_ms": 3000, "invoke": {"methods": ["POST"]}}'
        writeFileSync(join(root, language, 'fn.config.json'), config)
      }
      await gateway.reload()
      for (const language of languages) t.equal(await run(gateway, language, 'echo built'), 'built')
      const ends = { 'is killed': 'exec sleep 1000', 'ends by itself': 'kill -KILL $PPID; exec sleep 1000' }
      const endAll = async (language: Language): Promise<void> => {
        for (const [how, end] of Object.entries(ends)) {
          const file = join(folder, language)
          writeFileSync(file, '')
          chmodSync(file, 0o666)
          const stuck = await gateway.inject({ method: 'POST', url: `/${language}`, body: DETACH(file) + end })
          t.match(stuck.status, /^50[34]$/, `${language}: ${how}`)
          const pids = readFileSync(file, 'utf8').trim().split('\n').map(Number)
          t.equal(pids.length, 4, language)
          // Without perl the one without parent and environment is not found.
          const found = isolation === 'process' && NO_PERL ? pids.slice(0, 3) : pids
          await until(() => !found.some(isRunning), 20_000).catch(() => {})
          t.same(found.filter(isRunning).map(commandOf), [], `${language}: nothing is left of a worker that ${how}`)
          for (const pid of pids.filter(isRunning)) process.kill(pid, 'SIGKILL')
          t.equal(await run(gateway, language, 'echo again'), 'again')
        }
        if (isolation === 'process' || NO_PERL) return
        const uid = await run(gateway, language, 'id -u')
        t.match(await run(gateway, language, `${RUN_AWAY} exec sleep 1000`), /^status 504/, language)
        t.equal(await run(gateway, language, 'echo again'), 'again')
        // One look does not find it.
        const isThere = () =>
          Array.from({ length: 20 }, () => namesOf(Number(uid))).some(names => names.includes('perl'))
        await until(() => !isThere(), 20_000).catch(() => {})
        t.notOk(isThere(), `${language}: nothing runs away`)
      }
      await Promise.all(languages.map(endAll))
    },
  )
}
