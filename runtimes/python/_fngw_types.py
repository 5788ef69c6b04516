"""Types of events and answers, for editors and type checkers; nothing here runs. The name starts with _ and is no route.

    from _fngw_types import FnEvent, FnResponse

    def handler(event: FnEvent) -> FnResponse: ...
"""

from typing import Any, Dict, List, Optional, Tuple, TypedDict, Union


class FnClient(TypedDict):
    ip: Optional[str]
    ua: Optional[str]


class FnSession(TypedDict):
    id: Optional[str]
    raw: str
    cookies: Dict[str, str]


class FnContext(TypedDict):
    request_id: str
    runtime: str
    function_name: str
    version: str
    timeout_ms: int
    max_concurrency: int
    max_body_bytes: int
    worker_pool: Optional[Dict[str, Any]]
    gateway: Dict[str, Any]
    debug: Dict[str, bool]
    edge: bool
    user: Any
    trigger: Optional[Dict[str, Any]]
    trace: Optional[str]
    trace_state: Optional[str]


class FnEvent(TypedDict):
    id: str
    ts: int
    method: str
    path: str
    raw_path: str
    params: Dict[str, str]
    path_params: Dict[str, str]
    query: Dict[str, Union[str, List[str]]]
    headers: Dict[str, str]
    body: Optional[str]
    is_base64: bool
    body_base64: Optional[str]
    client: FnClient
    session: Optional[FnSession]
    version: str
    env: Dict[str, str]
    context: FnContext


class FnEnvelope(TypedDict, total=False):
    status: int
    headers: Dict[str, Union[str, List[str]]]
    body: Any
    is_base64: bool
    body_base64: str
    proxy: Dict[str, Any]


FnResponse = Union[FnEnvelope, Dict[str, Any], List[Any], str, int, float, bool, bytes, None, Tuple[Any, ...]]
