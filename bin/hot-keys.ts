/** Single keys while `fngw dev` serves at a terminal. Owner: page bin/dev. */

/** The part of a terminal's input that is used. */
export interface KeyInput {
  readonly isTTY?: boolean
  setRawMode(raw: boolean): unknown
  on(event: 'data', listener: (data: Buffer) => void): unknown
  off(event: 'data', listener: (data: Buffer) => void): unknown
  resume(): unknown
  pause(): unknown
}

export interface KeyActions {
  docs(): void
  console(): void
  reload(): void
  routes(): void
  clear(): void
  quit(): void
  /** Ctrl+Z: the shell takes over; `resume` is called when the program is continued. */
  suspend(resume: () => void): void
}

export const KEY_HELP = 'keys: d docs, u console, r reload, l routes, c clear, q quit'

const CTRL_C = '\u0003'
const CTRL_D = '\u0004'
const CTRL_Z = '\u001a'

/**
 * Calls an action for each key. In raw mode a terminal sends no signals: Ctrl+C is a key, too.
 * @returns a function that gives the terminal back as it was
 */
export function listenForKeys(input: KeyInput, actions: KeyActions): () => void {
  const onData = (data: Buffer): void => {
    const text = data.toString()
    // Arrow keys and pasted text are no commands.
    if (text.length !== 1) return
    onKey(text, actions, raw)
  }
  const raw = (isRaw: boolean): void => void input.setRawMode(isRaw)
  raw(true)
  input.on('data', onData)
  input.resume()
  return () => {
    input.off('data', onData)
    raw(false)
    input.pause()
  }
}

/**
 * As `listenForKeys`, with what this process does for the keys that end and suspend it. Whatever ends it, the terminal
 * is usable afterwards.
 */
export function followKeys(input: KeyInput, actions: Omit<KeyActions, 'quit' | 'suspend'>): () => void {
  const stop = listenForKeys(input, {
    ...actions,
    quit: () => process.kill(process.pid, 'SIGINT'),
    suspend: resume => {
      process.once('SIGCONT', resume)
      process.kill(process.pid, 'SIGTSTP')
    },
  })
  process.once('exit', stop)
  return () => {
    process.off('exit', stop)
    stop()
  }
}

function onKey(key: string, actions: KeyActions, raw: (isRaw: boolean) => void): void {
  switch (key) {
    case 'd':
    case 'o':
      actions.docs()
      break
    case 'u':
      actions.console()
      break
    case 'r':
      actions.reload()
      break
    case 'l':
      actions.routes()
      break
    case 'c':
      actions.clear()
      break
    case 'q':
    case CTRL_C:
    case CTRL_D:
      actions.quit()
      break
    case CTRL_Z:
      raw(false)
      actions.suspend(() => raw(true))
      break
  }
}
