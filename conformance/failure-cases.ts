/** Cases of what goes wrong in a handler, and of many calls at once. Owner: page bin/conformance. */

import { existsSync, readFileSync } from 'node:fs'
import { type Case, type Echo, type InsideRecord, toError, toJson } from './case.ts'
import type { Answer } from './http-client.ts'
import { LATE_MS, readFixture, SHORT_TIMEOUT_MS } from './fixture-tree.ts'
import { type Lacks, type Language, NO_PROCESS } from './languages.ts'

export const FAILURE_CASES: readonly Case[] = [
  {
    title: '[runtimes/conformance.2, runtime/wire-protocol.14] a thrown error is its bare message, with file and line',
    run: async bed => {
      await bed.each({}, async (t, language) => {
        const answer = await bed.ask(language, 'throw')
        const { error, detail } = toJson(answer.text) as { error: string; detail: Record<string, unknown> }
        const file = `${language.label}/all/handler${language.extension}`
        t.same([answer.status, error, detail.file, detail.line], [500, 'boom ü', file, boomLine(language)], 'thrown')
        const stack = String(detail.stack)
        t.match(stack, `handler${language.extension}`, 'with frames of the function')
        t.notMatch(stack, /runtimes\/|node:|node_modules|\[C\]|lib\/python/, 'and no other ones')
        t.ok(Buffer.byteLength(stack) <= 8 * 1024, 'no more than 8 KiB of them')
        t.equal((await bed.ask(language, 'echo')).status, 200, 'the next call is served')
      })
      const panics = 'a panic is made of its message'
      const noText: Lacks = {
        golang: panics,
        rs: panics,
        py: 'only exceptions can be raised',
        pya: 'only exceptions can be raised',
        php8: 'only Throwable can be thrown',
      }
      await bed.each(noText, async (t, language) => {
        t.equal(toError(await bed.ask(language, 'throw-text')), 'just text', 'a text is thrown')
      })
      await bed.each(noText, async (t, language) => {
        t.equal(toError(await bed.ask(language, 'throw-object')), 'handler threw {"code":7}', 'an object is thrown')
      })
    },
  },
  {
    title: '[runtimes/conformance.3, discovery/callable.2] what cannot be loaded says where and why',
    run: async bed => {
      const compiled: Lacks = { golang: 'compiled: see page runtimes/go', rs: 'compiled: see page runtimes/rust' }
      await bed.each(compiled, async (t, language) => {
        const { label, extension } = language
        const seen = async (name: string) => {
          const answer = await bed.send({ path: `/${label}/broken-${name}` })
          const { error, detail } = toJson(answer.text) as { error: string; detail: Record<string, unknown> }
          return { status: answer.status, error, file: detail?.file, line: detail?.line }
        }
        const file = (name: string) => `${label}/broken-${name}/handler${extension}`
        const is = (name: string, message: string | RegExp, line: number | undefined) => ({
          status: 500,
          error: message,
          file: file(name),
          line,
        })
        const starts = (text: string) => new RegExp(`^${text.replace(/[.()[\]]/g, '\\$&')}`)
        t.match(await seen('syntax'), is('syntax', starts(`syntax error in ${file('syntax')}:2: `), 2), 'syntax')
        t.match(await seen('import'), is('import', starts(`cannot load ${file('import')}:2: `), 2), 'import')
        t.match(await seen('import'), { error: /_gone/ }, 'again')
        t.same(await seen('throws'), is('throws', `cannot load ${file('throws')}:2: no start`, 2), 'throws')
        t.match(
          await seen('symbol'),
          is('symbol', starts(`${file('symbol')} has no function "handler" (it `), undefined),
          'symbol',
        )
        t.match(await seen('symbol'), { error: /(exports|defines) greet\)$/ }, 'and what it has')
      })
    },
  },
  {
    title:
      '[runtime/worker-set.6, runtime/worker-set.7, runtimes/conformance.4] a call that loops or waits too long is 504 and runs no further',
    run: async bed => {
      const { inside } = bed
      const pathOf = ({ label }: Language, folder: string): string =>
        inside?.pathOf(`${label}-${folder}.txt`) ?? '/dev/null'
      const wait = (language: Language, folder: string): Promise<Answer> => {
        const { label } = language
        const file = encodeURIComponent(pathOf(language, folder))
        return bed.ask(language, 'late', {
          path: `/${label}/${folder}?ms=${LATE_MS}&n=${label}-${folder}&file=${file}`,
        })
      }
      // Both would say so at about the same moment; only one may.
      const waited = new Map(
        await Promise.all(
          bed.languages.map(
            async one => [one.label, await Promise.all([wait(one, 'short'), wait(one, 'all')])] as const,
          ),
        ),
      )
      const looped = new Map(
        await Promise.all(
          bed.languages.map(
            async one => [one.label, await bed.ask(one, 'loop', { path: `/${one.label}/short` })] as const,
          ),
        ),
      )
      await bed.each({}, async (t, language) => {
        const { label, runtime } = language
        const [cut, whole] = waited.get(label)!
        const loop = looped.get(label)!
        t.same([cut.status, toError(cut)], [504, `runtime timeout after ${SHORT_TIMEOUT_MS} ms`], 'cut')
        t.same([whole.status, whole.text], [200, 'late'], 'the other function')
        t.same([loop.status, toError(loop)], [504, `runtime timeout after ${SHORT_TIMEOUT_MS} ms`], 'loop')
        const next = await bed.ask(language, 'echo', { path: `/${label}/short` })
        t.equal(next.status, 200, 'the next call')
        if (inside === null) return
        const said = inside.logs.map(record => record.message).join('')
        t.notOk(existsSync(pathOf(language, 'short')), 'wrote nothing after its end')
        t.notMatch(said, `late ${label}-short`, 'said nothing after its end')
        t.match(said, `late ${label}-all`, 'the other function said it')
        if (runtime !== 'lua')
          t.equal(readFileSync(pathOf(language, 'all'), 'utf8'), `${label}-all\n`, 'and wrote it once')
      })
    },
  },
  {
    title: '[runtimes/conformance.4, runtime/worker-set.9] exits, kills, memory and recursion end their own call alone',
    run: async bed => {
      const ends: [answer: string, query: string, lacks: Lacks, error: RegExp][] = [
        ['exit', '?code=0', NO_PROCESS, /exited with code 0|exit code 0|called exit\(\)/],
        ['exit', '?code=1', NO_PROCESS, /exited with code 1|exit code 1|called exit\(\)/],
        ['kill', '', NO_PROCESS, /^runtime worker ended: ended by SIGKILL/],
        ['memory', '', {}, /^(runtime worker ended: )?out of memory/],
        ['recurse', '', {}, /stack|recursion|memory|ended by SIG(SEGV|ABRT)|exited with code 2/i],
      ]
      await bed.each({}, async (t, language) => {
        const { label } = language
        // Another function of the language is called all the while.
        let isOver = false
        const beside: number[] = []
        const neighbour = (async () => {
          while (!isOver) beside.push((await bed.send({ path: `/${label}/other` })).status)
        })()
        // Awaited below; until then a connection that breaks is nobody's.
        neighbour.catch(() => {})
        try {
          for (const [answer, query, lacks, error] of ends) {
            if (lacks[label] !== undefined) {
              t.pass(answer, { skip: lacks[label] })
              continue
            }
            const cut = await bed.ask(language, answer, { path: `/${label}/all${query}` })
            t.ok(cut.status === 500 || cut.status === 503, `${answer}${query}: ${cut.status} ${cut.text.slice(0, 200)}`)
            t.match(toError(cut), error, `${answer}${query}: why`)
            t.equal((await bed.ask(language, 'echo')).status, 200, `${answer}${query}: the next call`)
          }
        } finally {
          isOver = true
        }
        await neighbour
        t.ok(beside.length > 0, 'another function was called')
        t.same([...new Set(beside)], [200], 'another function notices nothing')
      })
    },
  },
  {
    title: '[runtimes/conformance.5, invocation/response.11] output belongs to its call, also among 20 at once',
    run: async bed => {
      await bed.each({}, async (t, language) => {
        const { headers } = await bed.ask(language, 'print', { path: `/${language.label}/all?n=1` })
        t.same(
          [headers['x-fn-stdout'], headers['x-fn-stderr']],
          ['out 1 a out 1 b out 1 c', 'err 1 a err 1 b err 1 c'],
          'of one call',
        )
      })
      await bed.each({}, async (t, language) => {
        const from = bed.inside?.logs.length ?? 0
        const answers = await Promise.all(
          Array.from({ length: 20 }, async (_, n) => ({
            n,
            answer: await bed.ask(language, 'print', { path: `/${language.label}/all?n=${n}` }),
          })),
        )
        const records = bed.inside?.logs.slice(from)
        for (const { n, answer } of answers) {
          const lines = (word: string) => ['a', 'b', 'c'].map(part => `${word} ${n} ${part}`)
          t.equal(answer.headers['x-fn-stdout'], lines('out').join(' '), `stdout of ${n}`)
          t.equal(answer.headers['x-fn-stderr'], lines('err').join(' '), `stderr of ${n}`)
          if (records === undefined) continue
          const own = records.filter(record => record.requestId === answer.headers['x-request-id'])
          const text = (stream: string) =>
            own
              .filter(record => record.stream === stream)
              .map(({ message }) => message)
              .join('')
          t.same(text('stdout').trim().split('\n'), lines('out'), `stdout of ${n} in the log`)
          t.same(text('stderr').trim().split('\n'), lines('err'), `stderr of ${n} in the log`)
        }
      })
    },
  },
  {
    title:
      '[runtimes/conformance.5, runtimes/conformance.6] raw writes reach the log and corrupt nothing; a flood is cut',
    run: async bed => {
      await bed.each(NO_PROCESS, async (t, language) => {
        const { inside } = bed
        const from = inside?.logs.length ?? 0
        const answers = await Promise.all(Array.from({ length: 5 }, () => bed.ask(language, 'raw')))
        for (const answer of answers) t.same([answer.status, answer.text], [200, 'whole'], 'an answer beside raw bytes')
        const isRaw = (stream: string) => (record: InsideRecord) =>
          record.stream === stream && record.message.includes('raw \0\x10')
        await inside?.until(() => ['stdout', 'stderr'].every(stream => inside.logs.slice(from).some(isRaw(stream))))
        t.equal((await bed.ask(language, 'echo')).status, 200, 'the next call')
      })
      await bed.each({}, async (t, language) => {
        const from = bed.inside?.logs.length ?? 0
        const answer = await bed.ask(language, 'flood')
        t.same([answer.status, answer.text], [200, 'flooded'], 'an answer after a flood')
        t.ok((answer.headers['x-fn-stdout'] as string).length <= 1024, 'the header is short')
        if (bed.inside === null) return
        const own = bed.inside.logs.slice(from).filter(record => record.requestId === answer.headers['x-request-id'])
        const bytes = own.reduce((sum, { message }) => sum + message.length, 0)
        t.ok(bytes >= 60 * 1024 && bytes < 70 * 1024, `${bytes} of 1,024,000 bytes are kept`)
        t.match(own.at(-1)?.message, /more|dropped|cut|truncated/i, 'and it is told')
      })
    },
  },
  {
    title: '[runtimes/conformance.7] large bodies come and go unchanged',
    run: async bed => {
      const MIB = 1024 * 1024
      const anyBytes = Buffer.alloc(5 * MIB + 1, Buffer.from(Array.from({ length: 257 }, (_, i) => i & 0xff)))
      const noBase64: Lacks = { lua5: 'the fixture decodes base64 in Lua, which takes long' }
      await bed.each({}, async (t, language) => {
        const { label } = language
        const sizes = [MIB - 1, MIB, MIB + 1, ...(language.variant ? [] : [5 * MIB, 16 * MIB])]
        for (const size of sizes) {
          const body = Buffer.alloc(size, 'text of some length, ')
          const back = await bed.ask(language, 'binary', { method: 'POST', body })
          t.ok(back.status === 200 && back.body.equals(body), `${size} bytes of text both ways`)
        }
        const lacking = noBase64[label] ?? (language.variant ? 'as in the language before' : undefined)
        if (lacking === undefined) {
          const back = await bed.ask(language, 'binary', { method: 'POST', body: anyBytes })
          t.ok(back.body.equals(anyBytes), '5 MiB of any bytes')
        } else {
          t.pass('5 MiB of any bytes', { skip: lacking })
        }
        for (const size of [MIB - 2, MIB, MIB + 2]) {
          const { body } = await bed.ask(language, 'large', { path: `/${label}/all?bytes=${size}` })
          t.ok(body.equals(Buffer.alloc(size, 'ä')), `${size} bytes from the handler`)
        }
      })
    },
  },
  {
    title: '[runtimes/conformance.9] 100 calls at once never cross',
    run: async bed => {
      await bed.each({}, async (t, language) => {
        const answers = await Promise.all(
          Array.from({ length: 100 }, async (_, n) => {
            const body = `${n} ü ${'x'.repeat((n * 977) % 5000)}`
            const path = `/${language.label}/all?n=${n}`
            const { text } = await bed.ask(language, 'echo', {
              method: 'POST',
              path,
              body,
              headers: { 'x-n': String(n) },
            })
            const event = toJson(text) as Echo
            return event.body === body && event.query.n === String(n) && event.headers['x-n'] === String(n)
          }),
        )
        t.same(answers.filter(isRight => !isRight).length, 0, 'calls with the answer of another')
      })
    },
  },
]

/** 1-based number of the line that ends with `boom`. */
function boomLine(language: Language): number {
  return (
    readFixture(language.handler)
      .split('\n')
      .findIndex(line => /(\/\/|#|--) boom$/.test(line)) + 1
  )
}
