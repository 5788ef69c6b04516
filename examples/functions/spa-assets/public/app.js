const main = document.querySelector('main')

/** Shows the page of the address: `/` lists the cities, `/city/:id` shows one. */
async function show() {
  const [, section, id] = location.pathname.split('/')
  if (section === '') main.replaceChildren(list(await load('/api/cities')))
  else if (section === 'city') main.replaceChildren(details(await load(`/api/cities/${id}`)))
  else main.textContent = 'There is no such page.'
}

async function load(path) {
  const response = await fetch(path)
  return response.json()
}

function list(cities) {
  const items = cities.map(({ id, name }) => element('li', element('a', name, { href: `/city/${id}` })))
  return element('ul', ...items)
}

function details({ error, name, country, people }) {
  if (error !== undefined) return element('p', error)
  const rows = [['Name', name], ['Country', country], ['People', people.toLocaleString('en')]]
  return element('dl', ...rows.flatMap(([term, text]) => [element('dt', term), element('dd', text)]))
}

function element(name, ...content) {
  const made = document.createElement(name)
  const last = content.at(-1)
  if (typeof last === 'object' && !(last instanceof Node)) Object.assign(made, content.pop())
  made.append(...content)
  return made
}

document.addEventListener('click', event => {
  const link = event.target.closest('a')
  if (link === null || link.origin !== location.origin || event.ctrlKey || event.metaKey) return
  event.preventDefault()
  history.pushState(null, '', link.href)
  show()
})
addEventListener('popstate', show)
show()
