"""The functions, values and kinds of objects that give what lies outside of Python's objects."""

NAMED = {
    "builtins": "open input __import__ hash id",
    "codecs": "open",
    "ctypes": "CDLL PyDLL cdll pydll",
    "ctypes.util": "find_library",
    "gc": "get_count get_freeze_count get_objects get_referents get_referrers get_stats get_threshold isenabled",
    "getpass": "getuser",
    "glob": "glob iglob",
    "importlib": "import_module reload",
    "importlib.machinery": "ExtensionFileLoader FileFinder PathFinder SourceFileLoader SourcelessFileLoader",
    "importlib.metadata": "Distribution distribution distributions entry_points files metadata packages_distributions "
    "requires version",
    "importlib.resources": "as_file contents files is_resource open_binary open_text path read_binary read_text",
    "importlib.util": "LazyLoader find_spec module_from_spec spec_from_file_location spec_from_loader",
    "inspect": "getsource getsourcelines getsourcefile getfile stack currentframe",
    "io": "FileIO open_code",
    "linecache": "getline getlines updatecache",
    "locale": "atof atoi currency format_string getdefaultlocale getencoding getlocale getpreferredencoding localeconv "
    "nl_langinfo setlocale str strcoll strxfrm",
    "multiprocessing": "active_children cpu_count current_process get_start_method parent_process",
    "multiprocessing.shared_memory": "ShareableList SharedMemory",
    "numpy": "load loadtxt genfromtxt fromfile memmap",
    "os": "environ environb getenv getenvb getcwd getcwdb listdir scandir walk fwalk stat lstat access readlink "
    "urandom getrandom getpid getppid getuid geteuid getgid getlogin getpriority cpu_count process_cpu_count "
    "sched_getaffinity get_terminal_size getloadavg uname times open read popen system",
    "os.path": "exists lexists isfile isdir islink getmtime getatime getctime getsize expanduser abspath realpath",
    "pkgutil": "find_loader get_data get_importer get_loader iter_importers iter_modules resolve_name walk_packages",
    "platform": "architecture machine node platform processor release system uname version",
    "pwd": "getpwall getpwnam getpwuid",
    "resource": "getrlimit getrusage",
    "runpy": "run_module run_path",
    "secrets": "token_bytes token_hex token_urlsafe randbelow randbits choice",
    "shutil": "disk_usage get_terminal_size which",
    "signal": "getitimer getsignal",
    "socket": "create_connection getaddrinfo getfqdn gethostbyname gethostname socket",
    "subprocess": "run call check_call check_output getoutput getstatusoutput Popen",
    "sys": "modules argv orig_argv path path_hooks path_importer_cache meta_path warnoptions stdin flags _getframe "
    "_current_frames getallocatedblocks getprofile getrecursionlimit getrefcount getswitchinterval gettrace",
    "tempfile": "NamedTemporaryFile TemporaryDirectory TemporaryFile gettempdir mkdtemp mkstemp mktemp",
    "threading": "active_count current_thread enumerate get_ident get_native_id main_thread",
    "time": "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns thread_time "
    "thread_time_ns clock_gettime clock_gettime_ns get_clock_info localtime gmtime mktime strftime ctime",
    "tokenize": "open",
    "tracemalloc": "get_traced_memory",
    "uuid": "getnode uuid1 uuid4",
    "weakref": "getweakrefcount getweakrefs",
    "zipimport": "zipimporter",
}
"""Module -> names in it that are ambient."""

KINDS = {
    "_frozen_importlib.ModuleSpec": "spec",
    "_frozen_importlib_external.ExtensionFileLoader": "loader",
    "_frozen_importlib_external.FileFinder": "finder",
    "_frozen_importlib_external.NamespaceLoader": "loader",
    "_frozen_importlib_external.SourceFileLoader": "loader",
    "_frozen_importlib_external.SourcelessFileLoader": "loader",
    "contextvars.ContextVar": "ContextVar",
    "ctypes.CDLL": "library",
    "importlib.metadata.Distribution": "distribution",
    "io.IOBase": "file",
    "mmap.mmap": "mapped file",
    "multiprocessing.shared_memory.SharedMemory": "shared memory",
    "zipimport.zipimporter": "loader",
}
"""Classes whose instances are ambient, and what an instance is called."""

_INTERPRETER = (
    "gc importlib importlib.machinery importlib.util inspect linecache pkgutil sys threading tracemalloc weakref"
)

OF_NO_CONSEQUENCE = frozenset(
    {"hash", "id", "__import__"}
    | {f"{module}.{name}" for module in _INTERPRETER.split() for name in NAMED[module].split()}
)
"""Names of what packages read of the interpreter itself, to find their way or to tell people something."""

DIFFERENT_IN_EACH_PROCESS = frozenset({"hash", "id"})
"""Builtins that are ambient for some arguments, and in some places: captured code has others (`steps/sandbox.py`)."""

GENERATORS = {"random": "_inst", "numpy.random.mtrand": "_rand"}
"""Module -> its hidden generator, whose bound methods draw from the state of the process."""

CLOCKS = {"datetime": {"now", "today", "utcnow", "fromtimestamp"}, "date": {"today", "fromtimestamp"}}
"""Class of `datetime` -> its methods that tell the time, or the local form of one."""

MARKS = frozenset({"equinox._jit"})
"""Modules of packages that mark their frames with random bytes, to find them in tracebacks: no trace depends on it."""
