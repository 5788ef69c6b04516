import { EventEmitter } from 'node:events'
import t from 'tap'
import { type KeyActions, type KeyInput, listenForKeys } from '../../bin/hot-keys.ts'

function setup() {
  const events = new EventEmitter()
  const state = { raw: false, flowing: false }
  const input = Object.assign(events, {
    setRawMode: (raw: boolean) => {
      state.raw = raw
    },
    resume: () => {
      state.flowing = true
    },
    pause: () => {
      state.flowing = false
    },
  }) as unknown as KeyInput
  const called: string[] = []
  let resume = (): void => {}
  const act = (name: string) => () => void called.push(name)
  const actions: KeyActions = {
    docs: act('docs'),
    console: act('console'),
    reload: act('reload'),
    routes: act('routes'),
    clear: act('clear'),
    quit: act('quit'),
    suspend: again => {
      called.push('suspend')
      resume = again
    },
  }
  const stop = listenForKeys(input, actions)
  const press = (text: string): void => void events.emit('data', Buffer.from(text))
  return { state, called, press, stop, events, resume: () => resume() }
}

t.test('[bin/dev.13] a key is an action, and only a single one', async t => {
  const { called, press } = setup()
  for (const key of ['d', 'o', 'u', 'r', 'l', 'c', 'q', '\u0003', '\u0004', 'x', 'O', '\u001b[A', 'rr', '\n'])
    press(key)
  t.same(called, ['docs', 'docs', 'console', 'reload', 'routes', 'clear', 'quit', 'quit', 'quit'])
})

t.test('[bin/dev.13] the terminal is given back: at the end, and while the shell has it', async t => {
  const { state, press, stop, events, resume } = setup()
  t.same(state, { raw: true, flowing: true })
  press('\u001a')
  t.equal(state.raw, false)
  resume()
  t.equal(state.raw, true)
  stop()
  t.same(state, { raw: false, flowing: false })
  t.equal(events.listenerCount('data'), 0)
})
