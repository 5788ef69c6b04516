/** Cases of what handlers are given: event, query, params, bodies, environment. Owner: page bin/conformance. */

import { type Case, BYTES_TYPE, type Echo, toJson } from './case.ts'

export const EVENT_CASES: readonly Case[] = [
  {
    title:
      '[invocation/event.1, invocation/event.2, invocation/event.7, invocation/event.11, invocation/event.14, observe/trace.4] every field of the event',
    run: async bed => {
      const trace = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
      await bed.each({}, async (t, language) => {
        const headers = {
          'x-do': 'echo',
          'x-uni': 'ü é',
          'user-agent': 'test/1',
          cookie: 'a=1; sid=s1',
          traceparent: trace,
          tracestate: 'vendor="a\\b"',
        }
        const path = `/${language.label}/all`
        const before = Date.now()
        const answer = await bed.send({ method: 'POST', path: `${path}/?a=1&b=%C3%BC`, headers, body: 'text ü' })
        const event = toJson(answer.text) as Echo
        t.ok(bed.isLocal ? event.ts >= before && event.ts <= Date.now() : event.ts > 0, 'ts is now')
        const id = answer.headers['x-request-id']
        t.same(
          event,
          {
            id,
            ts: event.ts,
            method: 'POST',
            path,
            raw_path: `${path}/?a=1&b=%C3%BC`,
            params: {},
            path_params: {},
            query: { a: '1', b: 'ü' },
            headers: {
              'x-do': 'echo',
              'x-uni': 'ü é',
              'user-agent': 'test/1',
              cookie: 'a=1; sid=s1',
              traceparent: trace,
              tracestate: 'vendor="a\\b"',
              host: bed.host,
              'content-length': '7',
            },
            body: 'text ü',
            is_base64: false,
            body_base64: null,
            client: { ip: bed.isLocal ? '127.0.0.1' : event.client.ip, ua: 'test/1' },
            session: { id: 's1', raw: 'a=1; sid=s1', cookies: { a: '1', sid: 's1' } },
            version: 'default',
            env: { PLAIN: 'plän', SECRET: 's3cret', NUMBER: '5' },
            context: {
              request_id: id,
              runtime: language.runtime,
              function_name: `${language.label}/all`,
              version: 'default',
              timeout_ms: 20_000,
              max_concurrency: 200,
              max_body_bytes: 20 * 1024 * 1024,
              worker_pool: null,
              gateway: { worker_pid: 0 },
              debug: { enabled: true },
              edge: false,
              user: null,
              trigger: null,
              trace,
              trace_state: 'vendor="a\\b"',
            },
          },
          'every field',
        )
        const bare = toJson((await bed.ask(language, 'echo')).text) as Echo
        t.match(
          bare,
          { params: {}, query: {}, body: null, is_base64: false, body_base64: null, session: null },
          'what a bare request has',
        )
        t.match(bare, { client: { ua: null }, context: { user: null, trigger: null, trace_state: null } }, 'and lacks')
        t.match(bare.context.trace, /^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/, 'a trace of its own')
        if (bed.inside === null) return
        const called = await bed.inside.invoke(`${language.label}/all`, {
          method: 'PUT',
          headers: { 'X-Do': 'echo' },
          query: { n: 1, list: [1, 'b'] },
          context: { who: 'me', deep: [1, { a: null }] },
        })
        const inner = toJson(called.body.toString()) as Echo
        t.match(inner, { method: 'PUT', query: { n: '1', list: ['1', 'b'] } }, 'called by its name')
        t.equal(inner.context.user.who, 'me', 'context.user')
        t.equal(inner.context.user.deep[0], 1, 'context.user, inside')
      })
    },
  },
  {
    title: '[invocation/event.3, invocation/event.10] query forms',
    run: async bed => {
      const rows: [search: string, query: unknown][] = [
        ['', {}],
        ['?', {}],
        ['?a', { a: '' }],
        ['?a=', { a: '' }],
        ['?a=1&a=2&a=3', { a: ['1', '2', '3'] }],
        ['?a+b=c+d', { 'a b': 'c d' }],
        ['?%C3%BC=%E2%98%83&x=%F0%9D%84%9E', { ü: '☃', x: '𝄞' }],
        ['?a=b=c', { a: 'b=c' }],
        ['?a=%zz&b=%FF', { a: '%zz', b: '%FF' }],
        ['?1=x&0=y', { 0: 'y', 1: 'x' }],
        ['?constructor=1&toString=2&length=3', { constructor: '1', toString: '2', length: '3' }],
        ['?a[]=1&a.b=2', { 'a[]': '1', 'a.b': '2' }],
        ['?q=%00%22%5C%0A', { q: '\0"\\\n' }],
      ]
      await bed.each({}, async (t, language) => {
        for (const [search, query] of rows) {
          const { text } = await bed.ask(language, 'echo', { path: `/${language.label}/all${search}` })
          t.same((toJson(text) as { query: unknown }).query, query, search)
        }
        const { text } = await bed.ask(language, 'echo', { path: `/${language.label}/all?__proto__=1` })
        t.match(text, '"__proto__":"1"', 'an ordinary key')
      })
    },
  },
  {
    title: '[discovery/callable.5] params in the event and as the language takes them',
    run: async bed => {
      const rows: [path: string, params: Record<string, string>][] = [
        ['params/42', { id: '42' }],
        ['params/a%20b%2Fc', { id: 'a b/c' }],
        ['params/%C3%BC%E2%98%83', { id: 'ü☃' }],
        ['docs/a', { slug: 'a' }],
        ['docs/a/b%20c/d', { slug: 'a/b c/d' }],
        ['maybe', {}],
        ['maybe/x/y', { slug: 'x/y' }],
        ['wild', {}],
        ['wild/', {}],
        ['wild/x/y%20z', { wildcard: 'x/y z' }],
      ]
      await bed.each({}, async (t, language) => {
        for (const [path, params] of rows) {
          const target = `/${language.label}/${path}`
          const { params: inEvent, path_params: again } = toJson(
            (await bed.ask(language, 'echo', { path: target })).text,
          ) as Echo
          t.same([inEvent, again], [params, params], `${path}: in the event`)
          const given = toJson((await bed.ask(language, 'args', { path: target })).text)
          t.same(given, params, `${path}: beside it`)
        }
      })
    },
  },
  {
    title: '[invocation/event.15] request bodies of any bytes, every method, and unicode everywhere',
    run: async bed => {
      const all = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
      const texts = ['x', 'ü☃𝄞', 'a\0b', '\ufeffbom', ' \r\n', '{"a":1}', 'null']
      const binaries = [
        all,
        Buffer.from([0xff]),
        Buffer.from([0xc0, 0x80]),
        Buffer.from([0xed, 0xa0, 0x80]),
        Buffer.from('ü', 'latin1'),
      ]
      await bed.each({}, async (t, language) => {
        for (const body of texts) {
          const event = toJson((await bed.ask(language, 'echo', { method: 'POST', body })).text) as Echo
          t.same([event.body, event.is_base64, event.body_base64], [body, false, null], JSON.stringify(body))
          const back = await bed.ask(language, 'binary', { method: 'POST', body })
          t.equal(back.text, body, `${JSON.stringify(body)} comes back`)
        }
        for (const body of binaries) {
          const event = toJson((await bed.ask(language, 'echo', { method: 'POST', body })).text) as Echo
          t.same(
            [event.body, event.is_base64, event.body_base64],
            [null, true, body.toString('base64')],
            `${body.length} bytes`,
          )
          const back = await bed.ask(language, 'binary', { method: 'POST', body })
          t.ok(back.body.equals(body), `${body.length} bytes come back`)
          t.equal(back.headers['content-type'], 'application/x-test', `${body.length} bytes: type`)
        }
        const native = await bed.ask(language, 'bytes')
        t.ok(native.body.equals(all), 'all bytes as the language returns them')
        t.equal(native.headers['content-type'], BYTES_TYPE, 'their type')
        for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE']) {
          t.equal((toJson((await bed.ask(language, 'echo', { method })).text) as Echo).method, method, method)
        }
        const target = `/${language.label}/wild/%C3%BC/%E2%98%83?%C3%A4=%F0%9D%84%9E`
        const event = toJson((await bed.ask(language, 'echo', { path: target })).text) as Echo
        t.match(
          event,
          { path: `/${language.label}/wild/ü/☃`, raw_path: target, query: { ä: '𝄞' } },
          'unicode in the path and the query',
        )
      })
    },
  },
  {
    title: '[invocation/response.6] HEAD runs as GET and sends no body; 204 and 304 neither',
    run: async bed => {
      await bed.each({}, async (t, language) => {
        const head = await bed.ask(language, 'large', { method: 'HEAD', path: `/${language.label}/all?bytes=1000` })
        t.same([head.status, head.headers['content-length'], head.text], [200, '1000', ''], 'HEAD')
        const named = await bed.ask(language, 'echo', { method: 'HEAD' })
        t.equal(named.status, 200, 'HEAD of what GET answers')
        t.ok(Number(named.headers['content-length']) > 100, 'its length')
        const after = await bed.ask(language, 'large', { path: `/${language.label}/all?bytes=4` })
        t.equal(after.text, 'ää', 'the connection is in order')
      })
    },
  },
  {
    title:
      '[runtimes/conformance.1, runtimes/conformance.8] a function sees its own environment and nothing of the host',
    run: async bed => {
      await bed.each({}, async (t, language) => {
        const { event, process: seen } = toJson((await bed.ask(language, 'env')).text) as Record<
          string,
          Record<string, string>
        >
        t.same(event, { PLAIN: 'plän', SECRET: 's3cret', NUMBER: '5' }, 'event.env')
        t.match(seen, { PLAIN: 'plän', SECRET: 's3cret' }, 'the environment of the process')
        // By FNGW_WORKER the daemon finds processes that the function leaves behind.
        const own = (name: string) => /^(FN_|FNGW_|npm_|TAP|NODE_OPTIONS)/.test(name) && name !== 'FNGW_WORKER'
        const foreign = Object.keys(seen ?? {}).filter(own)
        t.same(foreign, [], 'no variable of the gateway')
        const bare = await bed.send({ path: `/${language.label}/short`, headers: { 'x-do': 'env' } })
        t.same((toJson(bare.text) as Echo).event, {}, 'nor of another function')
      })
    },
  },
  {
    title:
      '[discovery/callable.1, discovery/callable.2, discovery/callable.6] the callable, and another one by its name',
    run: async bed => {
      await bed.each({}, async (t, language) => {
        const other = await bed.send({ path: `/${language.label}/other` })
        t.same([other.status, other.text], [200, 'other GET'], 'another symbol')
      })
    },
  },
]
