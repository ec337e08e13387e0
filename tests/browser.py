"""Drives a headless browser, and records the errors of a page and its requests."""

import json
import shutil
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait


SECONDS = 60  # the longest wait, long enough for a busy machine


class Browser:
    """Headless Chromium. `driver` is Selenium's, and `keys` has names for keys without a character."""

    keys = Keys

    def __init__(self):
        paths = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
        if missing := [name for name, path in paths.items() if path is None]:
            pytest.fail(f"{' and '.join(missing)} missing: `make .venv/browser` installs the browser of these tests.")
        options = ChromeOptions()
        options.binary_location = paths["chromium"]
        # The sandbox does not start in containers, and their /dev/shm is small.
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,1000"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = Chrome(options=options, service=Service(paths["chromedriver"]))

    def new_chain(self) -> ActionChains:
        """Returns a chain of keys and clicks that go wherever the focus is."""
        return ActionChains(self.driver)

    def save_into(self, folder: Path):
        """Sets the folder in which the page saves files."""
        settings = {"behavior": "allow", "downloadPath": str(folder)}
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", settings)

    def open(self, page: str | Path, ready: str):
        """Opens an address or a file, and waits until the element of the selector `ready` has text."""
        self.problems()
        self.driver.get(page if isinstance(page, str) else page.resolve().as_uri())
        self.wait_for(lambda: self.text(ready))

    def wait_for(self, condition):
        """Waits until the condition is true, and returns its value."""
        return WebDriverWait(self.driver, SECONDS).until(lambda _: condition())

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def find_all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """Returns the text of the first element, even if it is scrolled away."""
        return self.find(selector).get_property("textContent").strip()

    def texts(self, selector: str) -> list[str]:
        """Returns the texts of all elements."""
        script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent.trim())"
        return self.driver.execute_script(script, selector)

    def set_value(self, selector: str, value: str | float):
        """Sets the value of an input field or a slider, and fires the events that a person's change fires."""
        script = """
            arguments[0].value = arguments[1];
            for (const kind of ["input", "change"]) arguments[0].dispatchEvent(new Event(kind, { bubbles: true }));
        """
        self.driver.execute_script(script, self.find(selector), str(value))

    def problems(self) -> list[str]:
        """Returns the console's messages since the last call, and requests for anything but pages and `data:` URLs."""
        problems = [entry["message"] for entry in self.driver.get_log("browser")]
        for entry in self.driver.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.requestWillBeSent" and event["params"].get("type") != "Document":
                problems.append(event["params"]["request"]["url"])
        return [problem for problem in problems if not problem.startswith(("data:", "about:"))]
