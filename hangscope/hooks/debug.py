from torch.distributed.debug import start_debug_server
from torch.distributed.debug._debug_handlers import default_handlers
from train import main

from hangscope.capture.debug_server import HangscopePage

if __name__ == "__main__":  # the server is a process of its own, which imports this file
    start_debug_server(port=25999, start_method="spawn", handlers=[*default_handlers(), HangscopePage()])
    main()
