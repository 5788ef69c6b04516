// Loaded first into a test whose coverage is taken. What the test starts must not see the variable that turned it on: tests
// compare environments, and V8 would write some megabytes for every process of the product.
delete process.env.NODE_V8_COVERAGE
