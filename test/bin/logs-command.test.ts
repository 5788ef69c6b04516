import { createServer } from 'node:http'
import { PassThrough } from 'node:stream'
import t, { type Test } from 'tap'
import { ApiClient } from '../../bin/api-client.ts'
import { type LogsFlags, runLogs } from '../../bin/logs-command.ts'
import { createOutput } from '../../bin/output.ts'
import { createProgram } from '../../bin/program.ts'
import { serveTree } from '../helpers/gateway-bed.ts'

/** A command whose standard output is read here. */
function start(url: string, flags: LogsFlags) {
  const stdout = new PassThrough()
  const stderr = new PassThrough().resume()
  let text = ''
  let look = (): void => {}
  stdout.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk
    look()
  })
  const output = createOutput(stdout as never, stderr as never, { NO_COLOR: '1' })
  const done = runLogs(flags, new ApiClient({ url, token: null }), output)
  const until = (wanted: string): Promise<string> =>
    new Promise(found => {
      look = () => text.includes(wanted) && found(text)
      look()
    })
  return { stdout, done, until, text: () => text }
}

async function serve(t: Test) {
  return serveTree(
    t,
    {
      'hello.lua': 'function handler(event) print("said " .. event.query.say) return 1 end\n',
      'other.lua': 'function handler() print("é\\27[2J") return 1 end\n',
      'broken.lua': 'function handler() error("boom") end\n',
    },
    { runtimes: ['lua'] },
  )
}

t.test('[bin/logs.1, bin/logs.2] all logs as one, by time, or what the flags choose', async t => {
  const { gateway, url } = await serve(t)
  for (const path of ['/hello?say=one', '/broken', '/other']) await gateway.inject(path)
  const show = async (flags: LogsFlags): Promise<string[]> => {
    const { done, text } = start(url, flags)
    await done
    return text()
      .split('\n')
      .slice(0, -1)
      .map(line => line.replace(/^\S+ /, '').replace(/ \S+$/, ''))
  }
  const all = await show({})
  const at = (text: string): number => all.findIndex(line => line.includes(text))
  t.ok(at('hello said one') !== -1 && at('hello said one') < at('200 GET /hello'), all.join('\n'))
  t.ok(at('200 GET /hello') < at('error broken GET /broken'))
  t.ok(at('error broken') < at('other é\\x1b[2J'))
  t.match(await show({ fn: 'hello' }), [/^hello said one$/, /^200 GET \/hello hello/])
  t.match(await show({ stream: 'stdout', fn: 'other' }), ['other é\\x1b[2J'])
  t.equal((await show({ lines: '1' })).length, 1)
  t.match(await show({ file: 'access', raw: true, fn: 'other' }), [/"path":"\/other"/])
  const json = start(url, { file: 'runtime', json: true, fn: 'hello' })
  await json.done
  t.match(JSON.parse(json.text()), { file: 'runtime', fn: 'hello', msg: 'said one', stream: 'stdout' })
  await t.rejects(start(url, { lines: 'x' }).done, { message: /says 400: query field lines must be an integer/ })
})

t.test('[bin/logs.4] -f goes on until the gateway ends, or nobody reads', async t => {
  const { gateway, url } = await serve(t)
  await gateway.inject('/hello?say=one')
  const following = start(url, { follow: true, file: 'runtime' })
  const leaving = start(url, { follow: true, file: 'runtime' })
  await Promise.all([following.until('said one'), leaving.until('said one')])
  leaving.stdout.destroy()
  await leaving.done
  await gateway.inject('/hello?say=two')
  await following.until('said two')
  await gateway.close()
  await following.done
  t.equal(following.text().match(/said/g)!.length, 2)
})

t.test('[bin/logs.4] characters that come in two pieces, and a last line without an end', async t => {
  const server = createServer((_req, res) => {
    const bytes = Buffer.from('one é\ntwo ü')
    res.write(bytes.subarray(0, 5))
    setImmediate(() => {
      res.write(bytes.subarray(5, 11))
      setImmediate(() => res.end(bytes.subarray(11)))
    })
  })
  t.teardown(() => server.close())
  await new Promise<void>(done => server.listen(0, '127.0.0.1', done))
  const { port } = server.address() as { port: number }
  const { done, text } = start(`http://127.0.0.1:${port}`, { raw: true })
  await done
  t.equal(text(), 'one é\ntwo ü\n')
})

/** `fngw` with these arguments, in this process. */
async function run(args: string[], env: Record<string, string> = { NO_COLOR: '1' }) {
  const stdout = new PassThrough()
  const stderr = new PassThrough()
  const output = createOutput(stdout as never, stderr as never, env)
  const program = createProgram({ output, version: '0', program: 'fngw', terminal: null })
  const logs = program.commands.find(command => command.name() === 'logs')!
  logs.exitOverride().configureOutput({ writeOut: text => stdout.write(text), writeErr: () => {} })
  const failure = await program.parseAsync(['logs', ...args], { from: 'user' }).then(
    () => null,
    (error: unknown) => error as { message: string; exitCode: number },
  )
  return { failure, stdout: String(stdout.read() ?? '') }
}

t.test('[bin/logs.5] the command line', async t => {
  const { gateway, url } = await serve(t)
  await gateway.inject('/hello?say=one')
  const said = await run(['--url', url, '--fn', 'hello', '--stream', 'stdout'])
  t.match(said, { failure: null, stdout: /^\S+ hello said one \S+\n$/ })
  const chosen = ['--url', url, '-n', '1', '--file', 'runtime', '--runtime', 'lua', '--version', 'default']
  t.match((await run(chosen, { FORCE_COLOR: '1' })).stdout, '\u001b[36mhello\u001b[39m')
  t.match((await run(['--url', url, '-n', 'x'])).failure, { message: /lines must be an integer/, exitCode: 1 })
  t.match((await run(['--file', 'x'])).failure, { message: /error, access, runtime, all/ })
  t.match((await run(['--url', 'http://127.0.0.1:1'])).failure, { message: /no gateway answers at/, exitCode: 1 })
  const help = (await run(['--help'])).stdout
  t.match(help, /-f, --follow.*--file <name>.*fngw logs -f --fn hello/s)
  t.ok(help.split('\n').every(line => line.length <= 80))
})
