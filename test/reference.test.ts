import { readdirSync, readFileSync } from 'node:fs'
import t from 'tap'
import { readCommands } from '../bin/command-tree.ts'
import { createProgram } from '../bin/program.ts'
import { readLiteral, toReferencePages } from '../build/reference-pages.mjs'
import { BINARY_ENV, SETTING_OPTIONS } from '../lib/config/setting-options.ts'
import { FUNCTION_CONFIG } from '../lib/config/function-config-fields.ts'
import { ENDPOINT_MEANINGS, listEndpoints } from '../build/endpoint-meanings.ts'
import { ERROR_MEANINGS } from '../build/error-meanings.ts'
import { ERROR_STATUS } from '../lib/core/errors.ts'

const folder = new URL('../docs/reference/', import.meta.url)
const pages = toReferencePages()
const page = (name: string): string => pages[name]!

/** Rows of all tables of a page, without their heads. */
function rowsOf(text: string): string[][] {
  const lines = text.split('\n')
  return lines.flatMap((line, i) =>
    line.startsWith('| ') && !line.startsWith('| ---') && !lines[i + 1]?.startsWith('| ---')
      ? [line.slice(2, -2).split(/ (?<!\\)\| /)]
      : [],
  )
}

t.test('[docs.5] what lies there is what the declarations say', async t => {
  t.same(readdirSync(folder).sort(), Object.keys(pages).sort())
  for (const [name, text] of Object.entries(pages)) {
    const lies = readFileSync(new URL(name, folder), 'utf8') === text
    t.ok(lies, `docs/reference/${name} is as declared; where not: npm run reference`)
  }
})

t.test('[docs.5, config/settings.15] each declaration has its row', async t => {
  const settings = rowsOf(page('settings.md')).map(([name]) => name)
  t.same(
    settings.sort(),
    [...Object.keys(SETTING_OPTIONS), ...Object.keys(BINARY_ENV)].map(name => `\`${name}\``).sort(),
  )
  t.same(
    rowsOf(page('settings.md')).find(([name]) => name === '`port`'),
    [
      '`port`',
      '`FN_PORT` `FN_HOST_PORT` `PORT`',
      '`port`',
      '`--port <number>`',
      'an integer from 0 to 65535',
      '8080',
      'TCP port to listen on; 0 takes a free one.',
    ],
  )
  const fields = rowsOf(page('function-config.md')).map(([name]) => name)
  for (const name of Object.keys(FUNCTION_CONFIG.fields!)) t.ok(fields.includes(`\`${name}\``), name)
  for (const name of ['worker_pool.max_queue', 'schedule.retry.jitter', 'cors.max_age', 'invoke.home.route'])
    t.ok(fields.includes(`\`${name}\``), name)
  t.same(new Set(fields).size, fields.length)
  const errors = rowsOf(page('errors.md'))
  t.same(
    errors.map(([status, code]) => [code, status]),
    Object.entries(ERROR_STATUS).map(([code, status]) => [`\`${code}\``, String(status)]),
  )
  const program = createProgram({ output: null as never, version: '', program: 'fngw', terminal: null })
  const commands = readCommands(program).filter(({ commands }) => commands.length === 0)
  for (const { words, args, flags } of commands) {
    t.match(page('command-line.md'), `\n## ${words.join(' ')}\n`)
    for (const { spelling } of [...args, ...flags]) t.match(page('command-line.md'), `\n| \`${spelling}\` |`)
  }
})

t.test('[docs.5, docs.6] each endpoint has a section, and no other has one', t => {
  const listed = listEndpoints().map(({ method, path }) => `${method} ${path}`)
  t.same(Object.keys(ENDPOINT_MEANINGS).sort(), [...listed].sort())
  const sections = page('http-api.md').split('\n## ').slice(1)
  t.same(
    sections.map(section => section.split('\n', 1)[0]),
    listed,
  )
  const logs = sections.find(section => section.startsWith('GET /_fn/logs'))
  t.match(logs, '| `lines` | an integer')
  t.match(logs, 'Access: read.')
  t.end()
})

t.test('[docs.5, docs.6] each export of the package is described, members too', t => {
  const text = page('embedding-api.md')
  const sections = new Map(text.split('\n### ').map(part => [part.slice(0, part.indexOf('\n')), part] as const))
  const index = readFileSync(new URL('../lib/index.ts', import.meta.url), 'utf8').replace(/^\/.*$/gm, '')
  const names = [...index.matchAll(/\{([^}]*)\}/g)].flatMap(([, list]) => list!.split(',').map(name => name.trim()))
  const exported = names.map(name => name.replace(/^type /, '')).filter(name => name !== '')
  t.ok(exported.length > 40)
  // A sentence between the heading and the code.
  for (const name of [...exported, 'TestGateway']) t.match(sections.get(name), /^\w+\n\n[^`]?.*[.].*\n\n/, name)
  for (const name of Object.keys(SETTING_OPTIONS))
    t.match(sections.get('Settings'), new RegExp(`\\*/\\n  ${name}: `), name)
  t.match(sections.get('createGateway'), 'function createGateway(options?: GatewayOptions): Promise<Gateway>')
  t.match(sections.get('GatewayJobs'), /list\(options\?: JobListOptions\): Promise/)
  t.match(sections.get('ErrorCode'), "'BAD_REQUEST' | 'BODY_TOO_LARGE'")
  t.match(sections.get('Dependencies'), /interface Dependencies \{\n[^#]*why\(name: string\)/, 'the picked methods')
  for (const hidden of ['isAlone', '@internal', '#options', 'recordOf', '§'])
    t.notMatch(text, hidden, `${hidden} is not for users`)
  t.end()
})

t.test('[docs.5] messages are read from the sources', async t => {
  const messages = new Map(rowsOf(page('errors.md')).map(([, code, , texts]) => [code, texts]))
  t.match(messages.get('`TIMEOUT`'), '`runtime timeout after ... ms`')
  t.match(messages.get('`BAD_REQUEST`'), '`request took too long to arrive (408)`', 'with a status of its own')
  t.match(messages.get('`POOL_OVERFLOW`'), '`worker pool overflow`<br>`worker pool queue timeout`')
  t.same(readLiteral("'a\\'b', x"), { text: "a'b", rest: ', x' })
  const nested = ['`a ', '{b(`}', '{1}`, "{")} c ', '{{ d: 1 }}`, {'].join('$')
  t.same(readLiteral(nested), { text: 'a ... c ...', rest: ', {' })
})

t.test('[docs.6] each entry says what it is for', async t => {
  const lasts: Record<string, number> = {
    'settings.md': 6,
    'function-config.md': 3,
    'errors.md': 2,
    'command-line.md': 1,
  }
  for (const [name, column] of Object.entries(lasts)) {
    for (const row of rowsOf(page(name))) {
      // Programs are told by their names.
      if (row.length > column) t.match(row[column], /\w{2,}.* \w/, `${name}: ${row[0]} ${row[1]}`)
    }
  }
  t.ok(Object.values(ERROR_MEANINGS).every(text => text.endsWith('.')))
  for (const part of page('command-line.md').split('\n## ').slice(1)) t.match(part, /^.+\n\n`?[^\n]+[.)]\n/)
})

t.test('[docs.13] each error code has a section that says its status and what to do', t => {
  const text = readFileSync(new URL('../docs/troubleshooting.md', import.meta.url), 'utf8')
  const sections = text.split('\n## ').slice(1)
  t.same(
    sections.map(section => /^(\w+)\n\n(\d{3})\b/.exec(section)?.slice(1)),
    Object.entries(ERROR_STATUS).map(([code, status]) => [code, String(status)]),
  )
  for (const section of sections) t.match(section, /\n\n- /, section.split('\n', 1)[0]!)
  t.end()
})
