"""A browser without a window, which writes down what goes wrong on a page and what it asks for."""

import json
import shutil
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait


SECONDS = 60  # to wait, on a busy machine


class Browser:
    """Headless Chromium; `driver` is for all that is not here, `keys` names those without a character."""

    keys = Keys

    def __init__(self):
        paths = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
        if missing := [name for name, path in paths.items() if path is None]:
            pytest.fail(f"{' and '.join(missing)} missing: `make .venv/browser` installs the browser of these tests.")
        options = ChromeOptions()
        options.binary_location = paths["chromium"]
        # The sandbox does not start in containers, whose /dev/shm is small.
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,1000"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = Chrome(options=options, service=Service(paths["chromedriver"]))

    def save_into(self, folder: Path):
        """Where the files go that the page saves."""
        settings = {"behavior": "allow", "downloadPath": str(folder)}
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", settings)

    def open(self, page: str | Path, ready: str):
        """Opens an address, or a file, and waits until there is text where the selector `ready` points."""
        self.problems()
        self.driver.get(page if isinstance(page, str) else page.resolve().as_uri())
        self.wait_for(lambda: self.text(ready))

    def wait_for(self, condition):
        """Waits until the condition is true; what it returned then."""
        return WebDriverWait(self.driver, SECONDS).until(lambda _: condition())

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def find_all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """The text, shown or scrolled away, of the first element."""
        return self.find(selector).get_property("textContent").strip()

    def texts(self, selector: str) -> list[str]:
        """The texts of all elements."""
        script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent.trim())"
        return self.driver.execute_script(script, selector)

    def set_value(self, selector: str, value: str | float):
        """What a person does who types a value, or slides to it, and lets go."""
        script = """
            arguments[0].value = arguments[1];
            for (const kind of ["input", "change"]) arguments[0].dispatchEvent(new Event(kind, { bubbles: true }));
        """
        self.driver.execute_script(script, self.find(selector), str(value))

    def problems(self) -> list[str]:
        """Since the last call: what the console says, and requests for anything but pages and the data in them."""
        found = [entry["message"] for entry in self.driver.get_log("browser")]
        for entry in self.driver.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.requestWillBeSent" and event["params"].get("type") != "Document":
                found.append(event["params"]["request"]["url"])
        return [problem for problem in found if not problem.startswith(("data:", "about:"))]
