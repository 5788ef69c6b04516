import { chmodSync, chownSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import {
  canChangeUser,
  checkImageUser,
  checkIsolation,
  isFullRoot,
  type ProcessPowers,
  readPowers,
  readSecrets,
} from '../../lib/config/setting-checks.ts'
import { resolveSettings } from '../../lib/config/settings.ts'
import { toUidRange, toUsers } from '../../lib/config/texts.ts'
import { asNobody } from '../helpers/as-nobody.ts'

const ALL = 0x1ffffffffffn
const NO_ROOT = process.geteuid?.() === 0 ? false : 'giving files away needs root'

t.test('[runtime/isolation.3] user needs Linux, root and five capabilities; process needs nothing', async t => {
  const resolved = resolveSettings({ env: { FN_ISOLATION: 'user' }, cwd: '/' })
  t.same(resolved.problems, [])
  const root: ProcessPowers = { platform: 'linux', uid: 0, groups: [], capabilities: ALL }
  const groups = Array.from({ length: 9999 }, (_, at) => 20_001 + at)
  const user: ProcessPowers = { platform: 'linux', uid: 1000, groups, capabilities: 0b11n << 6n }
  const cases: [name: string, powers: ProcessPowers, message: RegExp | null][] = [
    ['root', root, null],
    ['a system that tells no capabilities', { ...root, capabilities: null }, null],
    ['a user with two capabilities in all groups', user, null],
    [
      'a user',
      { ...user, capabilities: 0n },
      /^FN_ISOLATION cannot be user: it needs root or capabilities, this process runs as user 1000 without CAP_SETGID, CAP_SETUID$/,
    ],
    ['a user with one', { ...user, capabilities: 1n << 7n }, /without CAP_SETGID$/],
    [
      'a user who is in some groups',
      { ...user, groups: groups.slice(1) },
      /not in the groups 20001-29999 of functions; fngw dev and run join them/,
    ],
    [
      'a user of functions',
      { ...user, uid: 20_001 },
      /runs as user 20001, which FN_ISOLATION_UIDS gives to functions$/,
    ],
    ['the gateway’s own', { ...user, uid: 20_000 }, null],
    ['macOS', { ...root, platform: 'darwin' }, /it needs Linux, this is darwin$/],
    ['Windows', { platform: 'win32', uid: null, groups: [], capabilities: null }, /it needs Linux, this is win32$/],
    ['no CAP_SETUID', { ...root, capabilities: ALL & ~(1n << 7n) }, /root was started without CAP_SETUID$/],
    ['none', { ...root, capabilities: 0n }, /without CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_KILL, CAP_SETGID, CAP_SETUID$/],
  ]
  t.same([root, user, { ...user, capabilities: 0n }].map(canChangeUser), [true, true, false])
  t.same([root, { ...root, capabilities: 0b11n << 6n }, user].map(isFullRoot), [true, false, false])
  for (const [name, powers, message] of cases) {
    const problems = checkIsolation(resolved, powers)
    if (message === null) t.same(problems, [], name)
    else t.match(problems, [{ code: 'CONFIG_VALUE', message, hint: /Start the gateway as root/, source: 'env' }], name)
  }
  const byProcess = resolveSettings({ cwd: '/' })
  t.equal(byProcess.settings.isolation, 'process')
  t.same(checkIsolation(byProcess, { platform: 'win32', uid: null, groups: [], capabilities: null }), [])
  t.match(readPowers(), { platform: process.platform, uid: process.geteuid?.() })
})

t.test('[image.9] the image warns of functions that run as root', async t => {
  const root: ProcessPowers = { platform: 'linux', uid: 0, groups: [], capabilities: ALL }
  const warningsOf = (env: Record<string, string>, uid = 0, image = '1') => {
    const resolved = resolveSettings({ env, cwd: '/', options: { production: true } })
    return checkImageUser(resolved, { ...root, uid }, { FNGW_IMAGE: image }).warnings
  }
  t.match(warningsOf({}), [
    {
      code: 'CONFIG_UNSAFE',
      message: /^FN_ISOLATION is process, and the container was started as root/,
      hint: /--user 0/,
    },
  ])
  t.same(warningsOf({ FN_ISOLATION: 'user' }), [])
  t.same(warningsOf({}, 10_001), [])
  t.same(warningsOf({}, 0, ''), [])
  t.same(checkImageUser(resolveSettings({ cwd: '/' }), root, { FNGW_IMAGE: '1' }).warnings, [], 'fngw dev')
})

t.test('[runtime/isolation.19] a file with a secret of the gateway must be closed to functions', async t => {
  const root: ProcessPowers = { platform: 'linux', uid: 0, groups: [], capabilities: ALL }
  const folder = mkdtempSync(join(tmpdir(), 'fngw-secret-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  chmodSync(folder, 0o755)
  const file = join(folder, 'token')
  writeFileSync(file, 'a'.repeat(32))
  const check = (name: string, env: Record<string, string> = {}) => {
    const resolved = resolveSettings({ env: { FN_ISOLATION: 'user', [name]: file, ...env }, cwd: '/' })
    return checkIsolation(resolved, root).map(({ message, hint }) => `${message} ${hint}`)
  }
  const message = `can be read by functions (mode 644) Close it: chown 20000 ${file} && chmod 400 ${file}`
  for (const name of [
    'FN_ADMIN_TOKEN_FILE',
    'FN_RUNTIME_SECRET_FILE',
    'FN_JOBS_CALLBACK_SECRET_FILE',
    'FN_STORE_URL_FILE',
  ]) {
    chmodSync(file, 0o644)
    t.same(check(name), [`${name} ${message}`])
    t.same(check(name, { FN_ISOLATION: 'process' }), [])
    t.same(check(name, { FN_ISOLATION_FILES: 'warn' }), [])
    chmodSync(file, 0o640)
    t.same(check(name), [])
  }
  symlinkSync(file, `${file}-link`)
  chmodSync(file, 0o604)
  t.match(
    check('FN_ADMIN_TOKEN_FILE', { FN_ADMIN_TOKEN_FILE: `${file}-link` }),
    [/mode 604/],
    'the file counts, not the link',
  )
  chmodSync(folder, 0o750)
  t.same(check('FN_ADMIN_TOKEN_FILE'), [], 'in a closed folder')
  t.same(
    check('FN_ADMIN_TOKEN_FILE', { FN_ADMIN_TOKEN_FILE: `${file}-none` }),
    [],
    'one that is missing is another problem',
  )
})

t.test('[runtime/isolation.19] a file of the user or group of a function is open to it', { skip: NO_ROOT }, async t => {
  const root: ProcessPowers = { platform: 'linux', uid: 0, groups: [], capabilities: ALL }
  const folder = mkdtempSync(join(tmpdir(), 'fngw-secret-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  chmodSync(folder, 0o755)
  const file = join(folder, 'token')
  writeFileSync(file, 'a'.repeat(32), { mode: 0o400 })
  const resolved = resolveSettings({ env: { FN_ISOLATION: 'user', FN_ADMIN_TOKEN_FILE: file }, cwd: '/' })
  const isRefused = (uid: number, gid: number, mode: number) => {
    chownSync(file, uid, gid)
    chmodSync(file, mode)
    return checkIsolation(resolved, root).length > 0
  }
  t.equal(isRefused(20_000, 20_000, 0o440), false, 'the gateway’s own')
  t.equal(isRefused(20_001, 0, 0o400), true)
  t.equal(isRefused(20_000, 20_001, 0o440), true)
  t.equal(isRefused(20_000, 20_001, 0o400), false)
  t.end()
})

t.test('[runtime/isolation.5] ids are a range above root', async t => {
  const read = (text: string) => resolveSettings({ env: { FN_ISOLATION_UIDS: text }, cwd: '/' })
  t.same(read('').settings.isolationUids, '20000-29999')
  t.equal(read(' 5 - 9 ').settings.isolationUids, '5-9')
  t.same([toUidRange('5-9'), toUidRange('9-5'), toUidRange('5-5')], [{ first: 5, last: 9 }, null, null])
  t.same(toUsers('5-9'), { gateway: 5, functions: { first: 6, last: 9 } }, 'the first is the gateway')
  for (const text of [
    '0-5',
    '9-5',
    '5',
    '5-',
    '-5',
    'a-b',
    '1-99999999999',
    '1-4294967295',
    '1.5-3',
    '1-2-3',
    '7-7',
    '1-65537',
  ])
    t.match(
      read(text).problems,
      [{ message: /^FN_ISOLATION_UIDS must be a range of 2 to 65536 user ids such as/ }],
      text,
    )
})

t.test('[runtime/isolation.2] a file with a secret that cannot be used is named with the reason', async t => {
  const folder = mkdtempSync(join(tmpdir(), 'fngw-secret-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const file = join(folder, 'url')
  const read = (content: string | null, path = file) => {
    if (content !== null) writeFileSync(file, content)
    const { settings, problems } = readSecrets(resolveSettings({ env: { FN_STORE_URL_FILE: path }, cwd: '/' }))
    t.notMatch(JSON.stringify(problems), 'planted')
    return { url: settings.storeUrl, problem: problems[0]?.message ?? null }
  }
  const url = 'redis+sentinel://:planted@host/main'
  t.same(read(`${url}\n`), { url, problem: null }, 'a newline at its end')
  const rule = 'FN_STORE_URL_FILE must name a file of one line that can be read:'
  t.same(read('\n').problem, `${rule} ${file} is empty`)
  t.same(read('x'.repeat(4097)).problem, `${rule} ${file} has more than 4096 bytes`)
  t.same(read(null, folder).problem, `${rule} ${folder} is a folder`)
  t.same(read(null, `${file}-none`).problem, `${rule} ${file}-none does not exist`)
  t.match(
    read('redis+sentinel://:planted@host\n').problem,
    /^FN_STORE_URL_FILE must be a URL that ends with the name of/,
  )
  t.match(read(`redis://:planted@a\nredis://:planted@b`).problem, /^FN_STORE_URL_FILE must be a URL such as/)
  chmodSync(folder, 0o755)
  chmodSync(file, 0o000)
  await asNobody(async () => t.same(read(null).problem, `${rule} ${file} cannot be read (EACCES)`))
})
