from train import main

if __name__ == "__main__":  # the server is a separate process that imports this file
    try:  # torch's server needs requests and tabulate: pip install 'hangscope[debug]'
        from torch.distributed.debug import start_debug_server
        from torch.distributed.debug._debug_handlers import default_handlers

        from hangscope.capture.debug_server import HangscopePage

        start_debug_server(port=25999, start_method="spawn", handlers=[*default_handlers(), HangscopePage()])
    except Exception as error:  # training goes on without it
        print(f"no debug server: {error}")
    main()
