const form = document.querySelector('form')
const status = document.querySelector('[role=status]')
const table = document.querySelector('table')

async function call(method, body) {
  const headers = { Authorization: `Bearer ${form.elements.key.value}` }
  if (body !== undefined) headers['Content-Type'] = 'application/json'
  const response = await fetch('/links', { method, headers, body: JSON.stringify(body) })
  const answer = await response.json()
  if (!response.ok) throw new Error(answer.error)
  return answer
}

function cell(content) {
  const td = document.createElement('td')
  td.append(content)
  return td
}

function row({ code, url, visits }) {
  const link = document.createElement('a')
  link.href = `/${code}`
  link.textContent = `${location.host}/${code}`
  const tr = document.createElement('tr')
  tr.append(cell(link), cell(url), cell(String(visits)))
  return tr
}

form.addEventListener('submit', async event => {
  event.preventDefault()
  const { url, code } = form.elements
  try {
    const created = await call('POST', { url: new URL(url.value).href, code: code.value || undefined })
    status.textContent = `Created ${location.host}/${created.code}`
    url.value = code.value = ''
    table.tBodies[0].replaceChildren(...(await call('GET')).map(row))
    table.hidden = false
  } catch (error) {
    status.textContent = error.message
  }
})
