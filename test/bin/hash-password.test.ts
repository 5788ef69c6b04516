import { spawnSync } from 'node:child_process'
import { PassThrough, Readable } from 'node:stream'
import t from 'tap'
import { hashPassword } from '../../bin/hash-password.ts'
import { resolveSettings } from '../../lib/config/settings.ts'
import { Credentials } from '../../lib/control/session-endpoints.ts'
import { FNGW, toEnv } from '../helpers/cli.ts'

/** Whether one can log in with the password where the hash is set. */
async function opens(hash: string, password: string): Promise<boolean> {
  const { settings, problems } = resolveSettings({ env: { FN_CONSOLE_LOGIN_PASSWORD_HASH: hash }, cwd: '/' })
  t.same(problems, [])
  return (await new Credentials(settings).check({ username: 'admin', password })) !== null
}

const fromPipe = (text: string) => hashPassword({ stdin: Readable.from([Buffer.from(text)]), terminal: null })

t.test('[bin/hash-password.1, bin/hash-password.2] a line of standard input', async t => {
  for (const [text, password] of [
    ['secret\n', 'secret'],
    ['no end', 'no end'],
    [' käse \r\n', ' käse '],
  ] as const) {
    const hash = await fromPipe(text)
    t.ok(await opens(hash, password), password)
    t.notOk(await opens(hash, `${password}x`))
    t.not(hash, await fromPipe(text), 'each with a salt of its own')
  }
})

t.test('[bin/hash-password.3] what is no password', async t => {
  for (const text of ['', '\n', 'a\nb\n', 'a\tb', 'x'.repeat(1025), 'y'.repeat(1e6)])
    await t.rejects(fromPipe(text), { exitCode: 2, message: /^a password is one line of 1 to 1024 characters/ })
})

t.test('[bin/hash-password.2, bin/hash-password.3] at a terminal: typed twice, shown nowhere', async t => {
  const type = async (keys: string) => {
    const input = new PassThrough()
    const output = new PassThrough()
    const hash = hashPassword({ stdin: input, terminal: { input, output } })
    input.end(keys)
    const result = await hash.catch(error => error)
    return { result, shown: String(output.read()) }
  }
  const good = await type('secret\rsecret\r')
  t.ok(await opens(good.result, 'secret'))
  t.equal(good.shown, 'Password: \nOnce more: \n')
  const corrected = await type('secreX\u007ft\rsecret\r')
  t.ok(await opens(corrected.result, 'secret'), 'the delete key works')
  t.match((await type('secret\rsecrets\r')).result, { exitCode: 2, message: 'these are two passwords' })
  for (const keys of ['', 'secret\r', 'sec\u0003'])
    t.match((await type(keys)).result, { exitCode: 2, message: 'no password was given' }, JSON.stringify(keys))
})

t.test('[bin/hash-password.2] as a program', async t => {
  const run = (input: string) =>
    spawnSync(FNGW[0], [...FNGW.slice(1), 'hash-password'], {
      input,
      encoding: 'utf8',
      env: toEnv({}),
    })
  const { status, stdout, stderr } = run('secret\n')
  t.same([status, stderr], [0, ''])
  t.ok(await opens(stdout.trim(), 'secret'))
  const none = run('')
  t.same([none.status, none.stdout], [2, ''])
})
