/**
 * The pages of docs/reference, written from the declarations that the product itself reads: a row of settings, a field of a
 * config, an error code, a command. Owner: page docs.
 */

import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { readCommands } from '../bin/command-tree.ts'
import { createProgram } from '../bin/program.ts'
import { FUNCTION_CONFIG } from '../lib/config/function-config-fields.ts'
import { BINARY_ENV, SETTING_OPTIONS } from '../lib/config/setting-options.ts'
import { toEmbeddingParts } from './embedding-api.ts'
import { ENDPOINT_MEANINGS, listEndpoints } from './endpoint-meanings.ts'
import { ERROR_MEANINGS } from './error-meanings.ts'
import { ERROR_STATUS } from '../lib/core/errors.ts'

/** @typedef {import('../lib/config/fields.ts').Field<unknown>} Field */
/** @typedef {import('../lib/config/setting-options.ts').SettingOption<unknown>} Setting */
/** @typedef {import('../bin/command-tree.ts').CommandFact} Command */
/** @typedef {import('../bin/command-tree.ts').FlagFact} Flag */

const LIB = fileURLToPath(new URL('../lib', import.meta.url))
const WRITTEN = '<!-- Written by `npm run reference` from the declarations: change those, not this page. -->'

/** @returns {Record<string, string>} name of the file to its text */
export function toReferencePages() {
  return {
    'settings.md': toSettingsPage(),
    'function-config.md': toConfigPage(),
    'errors.md': toErrorsPage(),
    'command-line.md': toCommandPage(),
    'http-api.md': toApiPage(),
    'embedding-api.md': toEmbeddingPage(),
  }
}

/** @returns {string} */
function toSettingsPage() {
  const options = /** @type {[string, Setting][]} */ (Object.entries(SETTING_OPTIONS))
  const sections = [...new Set(options.map(([, { section }]) => section))]
  return toPage('Settings', [
    'Settings apply to the whole gateway. A flag overrides the variable, the variable overrides the key in `fngw.json`, and the key overrides the default. Of several variables the first that is set counts.',
    '`GET /_fn/settings` shows the settings in force and the source of each value ([configuration](../configuration.md)). Rules for values: [settings](../../spec/config/settings.md).',
    ...sections.flatMap(section => [
      `## ${section}`,
      toTable(
        ['setting', 'variables', '`fngw.json`', 'flags', 'must be', 'default', 'meaning'],
        options.filter(([, option]) => option.section === section).map(([name, option]) => toSettingRow(name, option)),
      ),
    ]),
    '## Programs',
    'Set the program of a tool with its variable or in `runtime-binaries` of `fngw.json`: a name on `PATH`, or a path.',
    toTable(
      ['tool in `runtime-binaries`', 'variable'],
      Object.entries(BINARY_ENV).map(([tool, variable]) => [toCode(tool), toCode(variable)]),
    ),
  ])
}

/** @param {string} name @param {Setting} option @returns {string[]} */
function toSettingRow(name, { env, key, keyAliases, flags, field, fallback, unit, description }) {
  return [
    toCode(name),
    toCodes(env),
    toCodes([...(key === null ? [] : [key]), ...keyAliases]),
    toCodes(flags),
    unit === null ? field.rule : `${field.rule}, ${unit}`,
    toDefault(fallback),
    description,
  ]
}

/** @param {unknown} value @returns {string} as it would be typed */
function toDefault(value) {
  if (value === null || value === undefined) return ''
  if (Array.isArray(value)) return value.length === 0 ? 'none' : value.join(', ')
  if (typeof value === 'object') return Object.keys(value).length === 0 ? 'none' : JSON.stringify(value)
  return String(value)
}

/** @returns {string} */
function toConfigPage() {
  return toPage('fn.config.json', [
    '`fn.config.json` configures the function in its folder, and everything below the folder. The nearest file that sets a field wins ([configuration](../configuration.md#functions)).',
    'For editors: the JSON Schema `fngw/schema/fn.config.schema.json`. Rules for invalid fields and for merging: [function config](../../spec/config/function-config.md).',
    toTable(['field', 'also written', 'must be', 'meaning'], toFieldRows(FUNCTION_CONFIG.fields ?? {}, '')),
  ])
}

/** @param {Readonly<Record<string, Field>>} fields @param {string} prefix @returns {string[][]} */
function toFieldRows(fields, prefix) {
  return Object.entries(fields).flatMap(([key, field]) => [
    [toCode(prefix + key), toCodes(field.aliases), field.rule, String(field.schema.description ?? '')],
    ...toFieldRows(field.fields ?? {}, `${prefix}${key}.`),
  ])
}

/** @returns {string} */
function toErrorsPage() {
  const messages = readMessages()
  const rows = Object.entries(ERROR_STATUS).map(([code, status]) => [
    String(status),
    toCode(code),
    ERROR_MEANINGS[/** @type {keyof typeof ERROR_MEANINGS} */ (code)],
    (messages.get(code) ?? []).map(toCode).join('<br>'),
  ])
  return toPage('Errors', [
    'If the gateway refuses a request or a function fails, the client gets the status and the body `{ "error": message }`. `fngw run` and `FN_ENV=production` replace messages of handlers with neutral ones.',
    'The log has the code and the message. In the table `...` stands for a value, and a status in parentheses replaces that of the row. Causes and fixes: [troubleshooting](../troubleshooting.md). Rules: [errors](../../spec/core/errors.md).',
    toTable(['status', 'code', 'when, and what helps', 'messages'], rows),
  ])
}

/** @returns {Map<string, string[]>} error code to the messages that the sources give it */
function readMessages() {
  const messages = new Map()
  const files = readdirSync(LIB, { recursive: true }).map(String).sort()
  for (const file of files) {
    if (!file.endsWith('.ts') || file.startsWith('console')) continue
    const source = readFileSync(join(LIB, file), 'utf8')
    for (const found of source.matchAll(/(?:new GatewayError\(\s*'([A-Z_]+)',\s*|badRequest\()(?=['`])/g)) {
      const code = found[1] ?? 'BAD_REQUEST'
      const first = readLiteral(source.slice(found.index + found[0].length))
      const why = found[1] === undefined ? /^,\s*(?=['`])/.exec(first.rest) : null
      const { text, rest } =
        found[1] !== undefined
          ? first
          : { text: `${first.text} ${why === null ? '...' : readLiteral(first.rest.slice(why[0].length)).text}`, rest: '' }
      const status = /^\s*,\s*\{\s*status: (\d{3})/.exec(rest)?.[1]
      const shown = status === undefined ? text : `${text} (${status})`
      const known = messages.get(code) ?? []
      // A message of values alone says nothing here.
      if (/[a-z]{3}/.test(text) && !known.includes(shown)) messages.set(code, [...known, shown].sort())
    }
  }
  return messages
}

/**
 * A string at the beginning of a source.
 * @param {string} source
 * @returns {{ text: string, rest: string }} what it says, with `...` for each value in it, and what comes behind
 */
export function readLiteral(source) {
  const quote = source[0]
  let text = ''
  let at = 1
  for (; source[at] !== quote; at++) {
    if (at >= source.length) throw new Error(`a message does not end: ${source.slice(0, 40)}`)
    if (source[at] === '\\') text += source[++at]
    else if (quote === '`' && source.startsWith('${', at)) {
      at = toEndOfValue(source, at + 2)
      text += '...'
    } else text += source[at]
  }
  return { text, rest: source.slice(at + 1) }
}

/** @param {string} source @param {number} from - behind `${` @returns {number} where its brace closes */
function toEndOfValue(source, from) {
  let depth = 1
  for (let at = from; at < source.length; at++) {
    if ('`"\''.includes(source.charAt(at))) at += source.length - at - readLiteral(source.slice(at)).rest.length - 1
    else if (source[at] === '{') depth++
    else if (source[at] === '}' && --depth === 0) return at
  }
  throw new Error(`a value in a message does not end: ${source.slice(from, from + 40)}`)
}

/** @returns {string} */
function toCommandPage() {
  // Nothing is run: what the commands print to, and who answers, does not matter.
  const program = createProgram({ output: /** @type {never} */ (null), version: '', program: 'fngw', terminal: null })
  const [top, ...commands] = /** @type {[Command, ...Command[]]} */ (readCommands(program))
  return toPage('Command line', [
    'The same as `fngw --help`, `fngw COMMAND --help` and `man fngw`. Exit status: 0 done; 1 it failed, or the answer is no; 2 wrong usage or wrong settings.',
    toFlagTable(top.flags),
    ...commands.filter(({ commands }) => commands.length === 0).flatMap(toCommandPart),
    '## Settings that help leaves out',
    'They are taken by the commands that read a tree or call a gateway, and matter to few or repeat a default. [All settings](settings.md).',
    toFlagTable(toHiddenFlags([top, ...commands]), true),
  ])
}

/** @param {Command} command @returns {string[]} */
function toCommandPart({ words, description, args, flags }) {
  const line = [...words, ...args.map(({ spelling }) => spelling), '[flags]'].join(' ')
  const rows = args.map(({ spelling, description, choices }) => [toCode(spelling), withChoices(description, choices)])
  return [
    `## ${words.join(' ')}`,
    `${toCode(line)}: ${description}`,
    ...(rows.length === 0 ? [] : [toTable(['argument', 'meaning'], rows)]),
    toFlagTable(flags),
  ]
}

/** @param {readonly Flag[]} flags @param {boolean} isHidden @returns {string} */
function toFlagTable(flags, isHidden = false) {
  const rows = flags.filter(({ isShown }) => isShown !== isHidden)
  return toTable(
    ['flag', 'meaning'],
    rows.map(({ spelling, description, choices }) => [toCode(spelling), withChoices(description, choices)]),
  )
}

/** @param {readonly Command[]} commands @returns {Flag[]} each flag that no command shows, once */
function toHiddenFlags(commands) {
  const flags = commands.flatMap(command => command.flags)
  const shown = new Set(flags.filter(({ isShown }) => isShown).map(({ long }) => long))
  return [...new Map(flags.filter(({ long }) => !shown.has(long)).map(flag => [flag.long, flag])).values()]
}

/** @param {string} description @param {readonly string[]} choices @returns {string} */
function withChoices(description, choices) {
  return choices.length === 0 ? description : `${description} One of: ${choices.join(', ')}.`
}

/** @type {Record<string, string>} */
const ACCESS = {
  open: 'everyone',
  read: 'read',
  acts: 'action',
  login: 'action, without a session',
  write: 'write',
}

/** @returns {string} */
function toApiPage() {
  return toPage('HTTP API', [
    'The admin API below `/_fn`. Who may call it and how changes are protected: [console and admin API](../admin-api.md). Responses are JSON; a refusal is `{ "error": message }` ([errors](errors.md)).',
    toTable(
      ['access', 'allowed for'],
      [
        ['everyone', 'every client'],
        ['read', 'this machine, or the admin token'],
        ['action', 'the same; from a browser or with a body also `Content-Type: application/json` or `X-Fngw-Request: 1`'],
        ['write', 'the same, with `FN_CONSOLE_WRITE_ENABLED=1` or the admin token'],
      ],
    ),
    'A body is JSON in UTF-8. An unknown query field is 400, and an empty value counts as not given.',
    ...listEndpoints().flatMap(({ method, path, access, query }) => {
      const { does, body, response } = /** @type {import('./endpoint-meanings.ts').EndpointMeaning} */ (
        ENDPOINT_MEANINGS[`${method} ${path}`]
      )
      const fields = Object.entries(query ?? {}).map(([name, { rule }]) => [toCode(name), rule])
      return [
        `## ${method} ${path}`,
        `${does} Access: ${ACCESS[access]}.`,
        ...(fields.length === 0 ? [] : [toTable(['query', 'must be'], fields)]),
        ...(body === undefined ? [] : [`Body: ${body}`]),
        `Response: ${response}`,
      ]
    }),
  ])
}

/** @returns {string} */
function toEmbeddingPage() {
  return toPage('Embedding API', [
    'The exports of the package `fngw`: functions, classes and types. How to use them: [embed a gateway](../embedding.md), [test functions](../testing.md), [handlers](../handlers.md).',
    'Modules `import` and CommonJS `require` get the same exports. All times are in milliseconds, unless a name ends with another unit.',
    ...toEmbeddingParts(),
  ])
}

/** @param {string} title @param {string[]} parts @returns {string} */
function toPage(title, parts) {
  return `${[`# ${title}`, WRITTEN, ...parts].join('\n\n')}\n`
}

/** @param {string[]} head @param {string[][]} rows @returns {string} */
function toTable(head, rows) {
  const lines = [head, head.map(() => '---'), ...rows.map(row => row.map(cell => cell.replaceAll('|', '\\|')))]
  return lines.map(cells => `| ${cells.join(' | ')} |`).join('\n')
}

/** @param {string} text @returns {string} */
function toCode(text) {
  return text.includes('`') ? `\`\` ${text} \`\`` : `\`${text}\``
}

/** @param {readonly string[]} texts @returns {string} */
function toCodes(texts) {
  return texts.map(toCode).join(' ')
}
