import t from 'tap'
import { type ClientConnection, Exchange, type ExchangeResponder } from '../../lib/http/exchange.ts'
import { HeadReader } from '../../lib/invocation/forwarded-headers.ts'

function makeExchange(rawHeaders: string[], calls: string[] = []): Exchange {
  const connection = { address: '10.0.0.1', remove: () => calls.push('remove') } as unknown as ClientConnection
  const responder = { onDisconnect: () => calls.push('left') } as unknown as ExchangeResponder
  const head = new HeadReader().read(rawHeaders)
  return new Exchange({ method: 'PUT', url: '/a?b' } as never, {} as never, connection, responder, head, 'id', 5, false)
}

t.test('[http/public.17] what a message says of its body', async t => {
  for (const [rawHeaders, hasBody, declaredLength] of [
    [[], false, -1],
    [['Content-Length', '0'], false, 0],
    [['Content-Length', '12'], true, 12],
    [['Content-Length', '1e3'], true, -1],
    [['Content-Length', '-1'], true, -1],
    [['Transfer-Encoding', 'chunked'], true, -1],
    [['Content-Length', '3', 'Transfer-Encoding', 'chunked'], true, -1],
  ] as [string[], boolean, number][]) {
    const exchange = makeExchange(rawHeaders)
    t.same([exchange.hasBody, exchange.declaredLength], [hasBody, declaredLength], rawHeaders.join(' '))
  }
})

t.test('[http/public.19] a client that leaves stops the work once, and nothing after the answer', async t => {
  const calls: string[] = []
  const open = makeExchange([], calls)
  t.match(open, { method: 'PUT', target: '/a?b', path: '/a?b', ip: '10.0.0.1' }, 'until it is checked')
  open.work = { abandon: () => calls.push('abandon') }
  open.bodyReceiver = { onBody: () => {}, onBodyError: () => {} }
  open.onDisconnect()
  t.same([calls, open.aborted, open.work, open.bodyReceiver], [['abandon', 'left'], true, null, null])

  const ended = makeExchange([], calls)
  ended.work = { abandon: () => calls.push('too late') }
  ended.passOn()
  ended.onDisconnect()
  t.same([calls, ended.aborted], [['abandon', 'left', 'remove'], false])
})
