<?php

/**
 * Loaded before the tests of PHP functions: packages of the function, and `Fngw\gateway()`. Page: bin/test.
 *
 *     $answer = Fngw\gateway()->inject('/hello', query: ['name' => 'Ada']);
 */

declare(strict_types=1);

namespace Fngw;

if (\is_file('vendor/autoload.php')) {
    require_once \getcwd() . '/vendor/autoload.php';
}

/** The gateway that `fngw test` runs. */
function gateway(): TestGateway
{
    $url = (string) \getenv('FNGW_TEST_URL');
    if ($url === '') {
        throw new \RuntimeException('there is no gateway: run "fngw test", or set FNGW_TEST_URL to the address of a running gateway');
    }
    return new TestGateway($url);
}

final class TestGateway
{
    /** @param string $url such as `http://127.0.0.1:40123` */
    public function __construct(public string $url)
    {
    }

    /**
     * Sends a request to the functions.
     *
     * @param array<string, string> $headers
     * @param mixed $body text as it is, anything else as JSON
     * @param array<string, mixed> $query
     */
    public function inject(string $url, string $method = 'GET', array $headers = [], mixed $body = null, array $query = []): InjectResponse
    {
        if ($query !== []) {
            $url .= (\str_contains($url, '?') ? '&' : '?') . \http_build_query($query);
        }
        $names = \array_map('strtolower', \array_keys($headers));
        if ($body !== null && !\is_string($body)) {
            $body = \json_encode($body, \JSON_THROW_ON_ERROR);
            if (!\in_array('content-type', $names, true)) {
                $headers['Content-Type'] = 'application/json';
            }
        }
        $parts = \parse_url($this->url);
        if (!\in_array('host', $names, true)) {
            $headers['Host'] = "{$parts['host']}:{$parts['port']}";
        }
        if ($body !== null) {
            $headers['Content-Length'] = (string) \strlen($body);
        }
        $lines = ["$method $url HTTP/1.0"];
        foreach ($headers as $name => $value) {
            $lines[] = "$name: $value";
        }
        foreach ($lines as $line) {
            if (\preg_match('/[\r\n]/', $line) === 1) {
                throw new \InvalidArgumentException('a line break is not allowed in a URL, a method or a header');
            }
        }
        $socket = \stream_socket_client("tcp://{$parts['host']}:{$parts['port']}");
        $request = \implode("\r\n", $lines) . "\r\n\r\n" . ($body ?? '');
        for ($sent = 0; $sent < \strlen($request); $sent += $count) {
            $count = \fwrite($socket, \substr($request, $sent, 65536));
            // The gateway refuses a large body before it has read all of it.
            if ($count === false || $count === 0) {
                break;
            }
        }
        // HTTP/1.0: the body ends with the connection.
        $answer = (string) \stream_get_contents($socket);
        \fclose($socket);
        return InjectResponse::parse($answer);
    }
}

final class InjectResponse
{
    /** @param array<string, string> $headers lower-case names; repeated ones joined by `, ` */
    private function __construct(
        public int $status,
        public array $headers,
        public string $body,
    ) {
    }

    public function text(): string
    {
        return $this->body;
    }

    public function json(): mixed
    {
        return \json_decode($this->body, true, flags: \JSON_THROW_ON_ERROR);
    }

    /** @internal */
    public static function parse(string $answer): self
    {
        [$head, $body] = \explode("\r\n\r\n", $answer, 2) + ['', ''];
        $lines = \explode("\r\n", $head);
        $status = (int) (\explode(' ', $lines[0])[1] ?? 0);
        if ($status === 0) {
            throw new \RuntimeException('the gateway closed the connection without a response');
        }
        $headers = [];
        foreach (\array_slice($lines, 1) as $line) {
            [$name, $value] = \explode(':', $line, 2) + ['', ''];
            $name = \strtolower($name);
            $headers[$name] = (isset($headers[$name]) ? "{$headers[$name]}, " : '') . \trim($value);
        }
        return new self($status, $headers, $body);
    }
}
