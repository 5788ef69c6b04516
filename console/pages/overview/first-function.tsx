/** The overview without functions: how to create the first one. Owner: page console/overview. */

import { Empty } from '../../parts/empty.tsx'

const FILE = `export const handler = () => ({ hello: 'world' })
`

/** @param root - folder of functions; undefined where the caller may not see it */
export function FirstFunction({ root, isWatching }: { root: string | undefined; isWatching: boolean }) {
  return (
    <Empty title="No functions yet">
      <p>Create one in Node, TypeScript, Python, PHP, Lua, Go or Rust:</p>
      <pre>fngw init hello -t python</pre>
      <p>
        Or save this as <code>hello.mjs</code> in {root === undefined ? 'the functions folder' : <code>{root}</code>}:
      </p>
      <pre>{FILE}</pre>
      <p>
        It serves <code>/hello</code>{' '}
        {isWatching ? 'as soon as it is saved.' : 'after a reload: this gateway does not watch for file changes.'}
      </p>
    </Empty>
  )
}
