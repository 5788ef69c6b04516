/**
 * Ends the program with the npm that started it. `npx fngw` and `npm run` put a shell in between: a SIGTERM to npm ends npm
 * and the shell, and the program itself never hears of it. Owner: page bin/dev.
 */

/** Milliseconds between two looks at the parent. */
const LOOK_MS = 500

/**
 * Reports when the parent of this process exits. Does nothing unless npm started it, since a shell that puts a program into the
 * background and leaves wants it to stay.
 * @param env - of this process
 * @returns a function that stops looking
 */
export function followParent(env: Readonly<Record<string, string | undefined>>, onGone: () => void): () => void {
  if (env.npm_command === undefined) return () => {}
  const parent = process.ppid
  const timer = setInterval(() => {
    if (process.ppid === parent) return
    clearInterval(timer)
    onGone()
  }, LOOK_MS)
  timer.unref()
  return () => clearInterval(timer)
}
