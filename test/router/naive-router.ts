/**
 * The route rules as plainly as they can be written: every pattern against every path, segment by segment, nothing
 * shared with lib/router. What the route tree finds is compared with this.
 */

import type { Random } from '../helpers/random.ts'

/** How many generated pairs a test compares: `FNGW_PAIRS`, else `usual`. */
export function pairCount(usual: number): number {
  return Number(process.env.FNGW_PAIRS ?? usual)
}

/** `FNGW_SEED` repeats a run. */
export function seed(): number {
  return Number(process.env.FNGW_SEED ?? Date.now() % 1_000_000_007)
}

const STATIC = ['a', 'b', 'ab', 'abc', 'b%20c', '%C3%BC', 'x%2Fy', '__proto__', 'constructor', '100%25', '~u']
const PARAMS = ['p', 'q', 'id', '__proto__', 'constructor', 'toString']

/** A pattern of up to five segments, made of few words, so that many patterns meet on one path. */
export function randomPattern(random: Random): string {
  const segments: string[] = []
  const names = new Set<string>()
  const fresh = (): string => {
    let name = random.pick(PARAMS)
    while (names.has(name)) name += '1'
    names.add(name)
    return name
  }
  for (let count = random.below(5); count > 0; count--) {
    segments.push(random.below(5) < 3 ? random.pick(STATIC) : `:${fresh()}`)
  }
  const end = random.below(8)
  if (end === 0) segments.push(`:${fresh()}*`)
  else if (end === 1) segments.push(`:${fresh()}*?`)
  else if (end === 2) segments.push('*')
  return `/${segments.join('/')}`
}

const WORDS = [...STATIC, 'c', 'zzz', 'a%2Fb', '%61', 'ü', '%62%20c', 'a'.repeat(30), '%2e', '..', '.', '%zz', '']

/** A raw path out of the same words, some of them escaped, doubled, or broken. */
export function randomPath(random: Random): string {
  const count = random.below(7)
  const segments = Array.from({ length: count }, () => {
    // Words near the end of the list make a path unusual; most paths have none of them.
    return random.below(4) === 0 ? random.pick(WORDS) : random.pick(STATIC)
  })
  return `/${segments.join('/')}${random.below(8) === 0 ? '/' : ''}`
}

/** Decoded segments of a raw path, or null when it is answered 400. */
export function naiveSegments(rawPath: string): string[] | null {
  const segments: string[] = []
  for (const part of rawPath.split('/').filter(part => part !== '')) {
    let text: string
    try {
      text = decodeURIComponent(part)
    } catch {
      return null
    }
    if (text.includes('\0')) return null
    if (text === '..') {
      if (segments.pop() === undefined) return null
    } else if (text !== '.') {
      segments.push(text)
    }
  }
  return segments
}

interface NaiveSegment {
  /** 0 static, 1 param, 2 catch-all, 3 optional catch-all, 4 wildcard. */
  kind: number
  text: string
}

export interface NaivePattern {
  text: string
  segments: NaiveSegment[]
  /** Two patterns with the same one match the same paths. */
  shape: string
}

const known = new Map<string, NaivePattern>()

export function naivePattern(text: string): NaivePattern {
  const pattern = known.get(text) ?? readPattern(text)
  known.set(text, pattern)
  return pattern
}

function readPattern(text: string): NaivePattern {
  const parts = text.split('/').filter(part => part !== '')
  const segments = parts.map((part): NaiveSegment => {
    if (part === '*') return { kind: 4, text: 'wildcard' }
    if (!part.startsWith(':')) return { kind: 0, text: decodeURIComponent(part) }
    if (part.endsWith('*?')) return { kind: 3, text: part.slice(1, -2) }
    return part.endsWith('*') ? { kind: 2, text: part.slice(1, -1) } : { kind: 1, text: part.slice(1) }
  })
  return { text, segments, shape: JSON.stringify(segments.map(({ kind, text }) => (kind === 0 ? [text] : kind))) }
}

/** Params of a match as pairs in path order, or null. */
export function naiveMatch(pattern: NaivePattern, path: readonly string[]): [string, string][] | null {
  const params: [string, string][] = []
  for (let i = 0; i < pattern.segments.length; i++) {
    const { kind, text } = pattern.segments[i]!
    if (kind >= 2) {
      if (i < path.length) return [...params, [text, path.slice(i).join('/')]]
      return kind === 3 ? params : null
    }
    const segment = path[i]
    if (segment === undefined || (kind === 0 && segment !== text)) return null
    if (kind === 1) params.push([text, segment])
  }
  return pattern.segments.length === path.length ? params : null
}

/** Less than 0 when `a` comes first: by kind, segment by segment; a pattern that ends comes before one that goes on. */
export function naiveOrder(a: NaivePattern, b: NaivePattern): number {
  for (let i = 0; ; i++) {
    const x = a.segments[i]?.kind ?? -1
    const y = b.segments[i]?.kind ?? -1
    if (x !== y) return x - y
    if (x === -1) return 0
  }
}
