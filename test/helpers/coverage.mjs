// How much of a module its own test file runs: `test/a/b.test.ts` and `test/a/b.subject.test.ts` count for `lib/a/b.ts` (or `bin/a/b.ts`) and for
// nothing else, so that a rule is proven where a reader looks for it. Read from what V8 writes into NODE_V8_COVERAGE.
//
// A source line counts as run when every piece of code on it ran: `if (x) return` is not run before x was true.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

/** The module that a test file is named for, below `root`; null for tests across modules. */
export function namesakeOf(root, testFile) {
  const stem = testFile.replace(/^test\//, '').replace(/\.test\.ts$/, '')
  const modules = [stem, stem.replace(/\.[^./]+$/, '')].map(
    path => `${/^(?:bin|conformance)\//.test(path) ? path : `lib/${path}`}.ts`,
  )
  return modules.find(module => existsSync(join(root, module))) ?? null
}

/** Tests of what runs in processes that they start: these are counted, not the test's own process alone. */
export function countsProcesses(testFile) {
  return /^test\/(?:bin\/|processes\/|front\.test\.ts$)/.test(testFile)
}

/** A process that is killed, as those of a test that does not end, leaves a file that it did not finish: it counts nothing. */
function parse(text) {
  try {
    return JSON.parse(text)
  } catch {
    return { result: [] }
  }
}

/**
 * @param folder - what NODE_V8_COVERAGE named while the test ran
 * @returns how many lines of the module hold code, and which of them did not run; all of them when it was never loaded
 */
export function readCoverage(root, folder, module) {
  const url = pathToFileURL(join(root, module)).href
  let lines = null
  for (const file of readdirSync(folder)) {
    const text = readFileSync(join(folder, file), 'utf8')
    // Every process and thread writes a file of some megabytes; most have nothing of the module.
    if (!text.includes(url)) continue
    const { 'source-map-cache': maps = {}, result } = parse(text)
    for (const { url: script, functions } of result) {
      const map = maps[script]
      // The module itself, or a file that it was joined into with others.
      const source = script === url ? null : (map?.data?.sources ?? []).indexOf(url)
      if (map?.data == null || source === -1) continue
      const found = toLines(map, source, functions)
      // A second thread or process may have run what the first did not.
      lines = lines === null ? found : merge(lines, found)
    }
  }
  if (lines === null) return toNothing(readFileSync(join(root, module), 'utf8'))
  const missed = [...lines].flatMap(([line, ran]) => (ran ? [] : [line])).sort((a, b) => a - b)
  return { lines: lines.size, missed }
}

/** What two tests of a module ran together, both as of `readCoverage`. */
export function joinCoverage(left, right) {
  if (left === undefined) return right
  return { lines: Math.max(left.lines, right.lines), missed: left.missed.filter(line => right.missed.includes(line)) }
}

/** Lines that either ran. Compiled by two compilers, the two need not hold the same lines. */
function merge(left, right) {
  const merged = new Map(left)
  for (const [line, ran] of right) merged.set(line, ran || left.get(line) === true)
  return merged
}

/** A test that does not load its module runs none of it. */
function toNothing(source) {
  const missed = source.split('\n').flatMap((line, i) => (/^\s*($|\/\/|\/?\*|import )/.test(line) ? [] : [i + 1]))
  return { lines: missed.length, missed }
}

/** Source line, from 1, to whether all code on it ran. @param wanted - number of the source; null for a file that has one */
function toLines({ lineLengths, data }, wanted, functions) {
  const starts = []
  let length = 0
  for (const chars of lineLengths) {
    starts.push(length)
    length += chars + 1
  }
  const ran = toRan(length, functions)
  const lines = new Map()
  for (const { line, column, source, sourceLine } of readMappings(data.mappings)) {
    if (wanted !== null && source !== wanted) continue
    const isRun = ran[starts[line] + column] === 1
    lines.set(sourceLine, isRun && lines.get(sourceLine) !== false)
  }
  return lines
}

/** For every character of the running code 1 when it ran. The smallest range around a character decides. */
function toRan(length, functions) {
  const ran = new Uint8Array(length)
  const ranges = functions.flatMap(fn => fn.ranges)
  ranges.sort((a, b) => b.endOffset - b.startOffset - (a.endOffset - a.startOffset))
  for (const { startOffset, endOffset, count } of ranges) ran.fill(count > 0 ? 1 : 0, startOffset, endOffset)
  return ran
}

const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'

/** Pieces of running code with the source and the line of it that they come from: the `mappings` of a source map. */
function* readMappings(mappings) {
  let source = 0
  let sourceLine = 0
  for (const [line, text] of mappings.split(';').entries()) {
    let column = 0
    for (const piece of text.split(',')) {
      if (piece === '') continue
      const [columns, sources, sourceLines] = readNumbers(piece)
      column += columns
      if (sources === undefined) continue
      source += sources
      sourceLine += sourceLines
      yield { line, column, source, sourceLine: sourceLine + 1 }
    }
  }
}

/** Numbers in base 64, five bits a digit, lowest first; the sign is the lowest bit. */
function readNumbers(piece) {
  const numbers = []
  let value = 0
  let shift = 0
  for (const char of piece) {
    const digit = DIGITS.indexOf(char)
    value += (digit & 31) << shift
    shift += 5
    if ((digit & 32) !== 0) continue
    numbers.push((value & 1) === 1 ? -(value >> 1) : value >> 1)
    value = 0
    shift = 0
  }
  return numbers
}

/** Share of its lines in percent that the modules of a folder must have run by their own tests together. */
const FLOORS = {
  bin: 84,
  lib: 85,
  'lib/assets': 90,
  'lib/config': 90,
  'lib/control': 85,
  'lib/core': 90,
  'lib/dependencies': 92,
  'lib/discovery': 90,
  'lib/edge': 94,
  'lib/files': 90,
  'lib/http': 90,
  'lib/invocation': 90,
  'lib/observe': 90,
  'lib/router': 90,
  'lib/runtime': 82,
  'lib/scheduler': 90,
}
const DEFAULT_FLOOR = 85

/**
 * @param covered - modules with what their own tests ran
 * @param isLong - show every module with the lines that did not run, else only what is too low
 * @param isWhole - false when only some tests ran: nothing can be said of folders then
 */
export function toCoverageReport(covered, { isLong, isWhole }) {
  const folders = new Map()
  const rows = []
  for (const [module, { lines, missed }] of [...covered].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const folder = module.slice(0, module.lastIndexOf('/'))
    const total = folders.get(folder) ?? { lines: 0, missed: 0 }
    folders.set(folder, { lines: total.lines + lines, missed: total.missed + missed.length })
    if (isLong) rows.push(`${toPercent(lines, missed.length)}  ${module}  ${toLineText(missed)}`.trimEnd())
  }
  let isLow = false
  for (const [folder, { lines, missed }] of folders) {
    const floor = FLOORS[folder] ?? DEFAULT_FLOOR
    const isBelow = isWhole && ((lines - missed) / lines) * 100 < floor
    isLow ||= isBelow
    if (isBelow)
      rows.push(`not ok coverage of ${folder}: ${toPercent(lines, missed).trim()}, at least ${floor} % is wanted`)
    else if (isLong) rows.push(`${toPercent(lines, missed)}  ${folder}/ together, at least ${floor} %`)
  }
  return { text: rows.map(row => `${row}\n`).join(''), isLow }
}

function toPercent(lines, missed) {
  return `${(((lines - missed) / lines) * 100).toFixed(1).padStart(5)} %`
}

/** Lines as text: `4, 9-12`. */
export function toLineText(lines) {
  const runs = []
  for (const line of lines) {
    const last = runs.at(-1)
    if (last !== undefined && line === last.to + 1) last.to = line
    else runs.push({ from: line, to: line })
  }
  return runs.map(({ from, to }) => (from === to ? `${from}` : `${from}-${to}`)).join(', ')
}
