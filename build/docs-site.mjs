/**
 * What turns the pages of docs/ into a site: the sidebar, tabs, file names above code blocks, links, and the check of a built site.
 * Owner: page docs.
 */

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join, posix } from 'node:path'

/** Names of tabs by the language of their code blocks. */
const TAB_NAMES = { js: 'Node', ts: 'TypeScript', python: 'Python', php: 'PHP', lua: 'Lua', go: 'Go', rust: 'Rust' }

/**
 * How the search of the site reads words and ranks sections. VitePress sends the functions to browsers as text, so they
 * use nothing but their arguments.
 */
export const SEARCH = {
  options: {
    /** @param {string} term */
    processTerm: term => {
      const word = term.toLowerCase()
      // Words of questions that are in every section.
      if (/^(?:a|an|and|are|as|at|be|by|can|do|does|for|from|have|how|i|if|in|into|is|it|its|me|my|of|on|or|so|that|the|there|this|to|use|using|want|what|when|where|which|with|you|your)$/.test(word)) return null
      // One word for singular and plural, verb and noun.
      return word.replace(/(?<=\w{4})(?:(?<!s)s|ing)$/, '')
    },
  },
  searchOptions: {
    /** @param {string} term */
    prefix: term => term.length > 2,
    /** @param {string} term */
    fuzzy: term => (term.length > 4 ? 0.2 : false),
    // A guide explains what the reference lists and a recipe uses.
    /** @param {string} id */
    boostDocument: id => {
      if (id.startsWith('/CHANGELOG')) return 0.05
      if (/^\/(?:reference|examples|how-it-works|SECURITY|CONTRIBUTING)/.test(id)) return 0.3
      return /^\/(?:from-|recipes)/.test(id) ? 0.6 : 1
    },
  },
}

/**
 * @param {string} path - of a page in the site
 * @returns {boolean} whether the search finds it: the specification is for people who change fngw, and the index has only links
 */
export function isSearched(path) {
  return !/^(?:spec\/|index\.md$|docs\/README\.md$)/.test(path)
}

/** @typedef {{ text: string, link: string }} SidebarItem */

/**
 * The sidebar: one group for each heading of docs/README.md, one item for each list item below it.
 * @param {string} index - text of docs/README.md
 * @returns {{ text: string, items: SidebarItem[] }[]}
 */
export function toSidebar(index) {
  /** @type {{ text: string, items: SidebarItem[] }[]} */
  const groups = []
  for (const line of index.split('\n')) {
    const heading = /^## (.+)$/.exec(line)?.[1]
    const [, text, target] = /^- \[([^\]]+)\]\(([^)]+)\)/.exec(line) ?? []
    if (heading !== undefined) groups.push({ text: heading, items: [] })
    else if (text !== undefined) groups.at(-1)?.items.push({ text, link: toSiteLink('docs/README.md', String(target)) })
  }
  return groups
}

/**
 * @param {string} page - path below the repository, `docs/auth.md`
 * @returns {string} its path in the site, without a leading slash
 */
export function toSitePath(page) {
  return page.replace(/^docs\//, '').replace(/(^|\/)README\.md$/, '$1index.md')
}

/**
 * @param {string} page - path below the repository of the page that has the link
 * @param {string} target - as the page writes it
 * @returns {string} the link in the site
 */
export function toSiteLink(page, target) {
  if (/^([a-z]+:|#)/.test(target)) return target
  const [path = '', anchor] = target.split('#')
  const site = toSitePath(posix.join(posix.dirname(page), path))
  const link = `/${site.replace(/\.md$/, '.html')}`
  return anchor === undefined ? link : `${link}#${anchor}`
}

/**
 * @param {string} heading
 * @returns {string} the anchor that GitHub and npm give it, so that a link works in both and in the site
 */
export function toAnchor(heading) {
  return heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .replaceAll(' ', '-')
}

/**
 * A page as VitePress reads it. Comments say in the page what belongs together, so that it is plain Markdown everywhere else:
 * code blocks between `<!-- tabs -->` and `<!-- end of tabs -->` become tabs, and a `file` comment the name above its block.
 * @param {string} text
 * @returns {string}
 */
export function toSitePage(text) {
  /** @type {string[]} */
  const lines = []
  let isTabs = false
  let isCode = false
  /** @type {string | null} */
  let file = null
  let isNamed = false
  for (const line of text.split('\n')) {
    if (isCode) {
      lines.push(line)
      if (line === '```') {
        isCode = false
        if (isNamed) lines.push(':::')
        isNamed = false
      }
    } else if (line === '<!-- tabs -->') {
      isTabs = true
      lines.push('::: code-group')
    } else if (line === '<!-- end of tabs -->') {
      isTabs = false
      lines.push(':::')
    } else if (/^<!-- .* -->$/.test(line)) file = /^<!-- file: (.+) -->$/.exec(line)?.[1] ?? null
    else if (line.startsWith('```')) {
      isCode = true
      const language = line.slice(3)
      const name = isTabs ? TAB_NAMES[/** @type {keyof typeof TAB_NAMES} */ (language)] : file
      isNamed = !isTabs && name !== null
      if (isNamed) lines.push('::: code-group')
      lines.push(name ? `${line} [${name}]` : line)
      file = null
    } else if (!isTabs || line !== '') lines.push(line)
  }
  return lines.join('\n')
}

/** @typedef {{ type: string, tagName?: string, value?: string, properties?: Record<string, unknown>, children: HtmlNode[] }} HtmlNode */

/**
 * Marks the prompts and the output of a session, so that the copy button takes only the commands.
 * @param {HtmlNode} code - lines, with line breaks between them
 */
export function markCommands(code) {
  const ignored = { class: 'vp-copy-ignore' }
  let isOutput = false
  for (const [i, node] of code.children.entries()) {
    const text = toText(node)
    if (node.type === 'text') {
      if (isOutput) code.children[i] = { type: 'element', tagName: 'span', properties: ignored, children: [node] }
      continue
    }
    isOutput = !/^[$>] /.test(text)
    if (isOutput) node.properties = { ...node.properties, class: 'line vp-copy-ignore' }
    else {
      dropStart(node, 2)
      const prompt = { type: 'text', value: text.slice(0, 2), children: [] }
      node.children.unshift({ type: 'element', tagName: 'span', properties: ignored, children: [prompt] })
    }
  }
}

/** @param {HtmlNode} node @returns {string} */
function toText(node) {
  return node.value ?? node.children.map(toText).join('')
}

/** @param {HtmlNode} node @param {number} count - characters that it loses @returns {number} those that it was too short for */
function dropStart(node, count) {
  if (node.value === undefined) return node.children.reduce((left, child) => dropStart(child, left), count)
  const left = Math.max(0, count - node.value.length)
  node.value = node.value.slice(count)
  return left
}

/**
 * @param {string} folder - of a built site
 * @returns {string[]} links that lead nowhere, and requests to other hosts
 */
export function checkSite(folder) {
  const names = readdirSync(folder, { recursive: true }).map(String)
  const pages = new Map(
    names.filter(name => name.endsWith('.html')).map(name => [name, readFileSync(join(folder, name), 'utf8')]),
  )
  const ids = new Map(
    [...pages].map(([name, html]) => [name, new Set([...html.matchAll(/\sid="([^"]+)"/g)].map(([, id]) => id))]),
  )
  /** @type {string[]} */
  const faults = []
  for (const [name, html] of pages) {
    for (const [, , href = ''] of html.matchAll(/<a\s[^>]*?\b(href)="([^"]*)"/g)) {
      if (/^[a-z]+:/.test(href)) continue
      const { pathname, hash } = new URL(href, `http://site/${name}`)
      const path = decodeURIComponent(pathname.slice(1))
      const target = path === '' || path.endsWith('/') ? `${path}index.html` : path
      if (!existsSync(join(folder, target))) faults.push(`${name}: ${href} leads to no file`)
      else if (hash.length > 1 && ids.get(target)?.has(decodeURIComponent(hash.slice(1))) === false)
        faults.push(`${name}: ${href} leads to no heading`)
    }
    for (const [tag, , address] of html.matchAll(/<(?:script|link|img|iframe)\s[^>]*?\b(src|href)="((?:https?:)?\/\/[^"]+)"/g))
      faults.push(`${name}: requests ${address} (${tag.slice(0, 20)})`)
  }
  for (const name of names.filter(name => name.endsWith('.css')))
    for (const [, address] of readFileSync(join(folder, name), 'utf8').matchAll(/url\(["']?((?:https?:)?\/\/[^)"']+)/g))
      faults.push(`${name}: requests ${address}`)
  return faults
}
