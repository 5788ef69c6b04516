/** What `fngw init` writes for more than one function: an API of three routes, a page with an API. Owner: page bin/init. */

/** A file to write: its path below the folder of the template, and its text. */
export type StarterFile = readonly [path: string, text: string]

const API_ITEMS = `// Private: a file whose name starts with _ has no route. Put your database here.
const items = [
  { id: '1', name: 'first' },
  { id: '2', name: 'second' },
]

export const listItems = () => items

export const findItem = id => items.find(item => item.id === id) ?? null
`

const API_LIST = `import { listItems } from './_items.js'

// GET: whatever is returned becomes JSON.
export const handler = () => ({ items: listItems() })
`

const API_ONE = `import { findItem } from './_items.js'

// GET with a parameter: the file's name says which. { status, headers, body } sets more than the body.
export const handler = (event, { id }) => {
  const item = findItem(id)
  return item ?? { status: 404, body: { error: \`no item \${id}\` } }
}
`

const API_POST = `// POST: the body is text as it came.
export const handler = event => {
  let item
  try {
    item = JSON.parse(event.body)
  } catch {
    item = null
  }
  if (typeof item?.name !== 'string') return { status: 400, body: { error: 'send {"name": "..."}' } }
  const id = crypto.randomUUID()
  return { status: 201, headers: { Location: \`\${event.path}/\${id}\` }, body: { id, name: item.name } }
}
`

/** `GET /<name>`, `GET /<name>/:id`, `POST /<name>`, in JavaScript. */
export const API_FILES: readonly StarterFile[] = [
  ['index.js', API_LIST],
  ['[id].js', API_ONE],
  ['post.js', API_POST],
  ['_items.js', API_ITEMS],
]

const PAGE = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width">
    <title>fngw</title>
    <script type="module" src="/app.js"></script>
  </head>
  <body>
    <main>
      <h1>Hello</h1>
      <p id="answer">...</p>
    </main>
  </body>
</html>
`

const toPageScript = (
  name: string,
): string => `// Paths without a file or route show index.html: routing in the browser works.
const answer = await fetch('/api/${name}?name=browser')
document.querySelector('#answer').textContent = (await answer.json()).message
`

const PAGE_FUNCTION = `// GET: whatever is returned becomes JSON.
export const handler = event => ({ message: \`Hello, \${event.query.name ?? 'world'}!\` })
`

/** A page in `public/` and the function `GET /api/<name>` it asks; the functions root gets the mount. */
export function toSpaFiles(fnName: string, schema: string): readonly StarterFile[] {
  const name = fnName.replace(/^api\//, '')
  const config = {
    $schema: schema,
    assets: { directory: 'public', not_found_handling: 'single-page-application' },
  }
  return [
    ['fn.config.json', `${JSON.stringify(config, null, 2)}\n`],
    ['public/index.html', PAGE],
    ['public/app.js', toPageScript(name)],
    [`api/${name}.js`, PAGE_FUNCTION],
  ]
}
