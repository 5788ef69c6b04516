-- Which flags exist and how far each is rolled out.
return {
  ["new-checkout"] = { percent = 50 },
  ["dark-mode"] = { percent = 100 },
  ["beta-search"] = { percent = 0, users = { "ada", "linus" } },
}
